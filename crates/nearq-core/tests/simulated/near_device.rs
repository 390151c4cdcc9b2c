//! A queue near a device, on a simulated machine of two nodes.

use std::sync::Arc;

use nearq_core::home::Home;
use nearq_lock::Mutex;
use nearq_platform::LockPlatform;
use nearq_sim::Sim;
use nearq_topology::Topology;

use crate::simulated_homes::{node, on_cpu, simulate};

/// The node of a device is found in the files of a machine of the same shape: a simulated machine has no devices.
#[test]
fn the_items_of_a_queue_near_a_device_run_on_the_device_s_node() {
    let folder = std::env::temp_dir().join(format!("nearq-near-{}", std::process::id()));
    let file = |name: &str, text: &str| {
        let path = folder.join("sys").join(name);
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    };
    file("devices/system/cpu/online", "0-7");
    file("devices/system/cpu/present", "0-7");
    for node in 0..2 {
        file(&format!("devices/system/node/node{node}/cpulist"), ["0-3", "4-7"][node]);
    }
    for (name, text) in [("class", "0x030200"), ("vendor", "0x10de"), ("numa_node", "1")] {
        file(&format!("devices/pci0000:40/0000:41:00.0/{name}"), text);
    }
    std::fs::create_dir_all(folder.join("sys/bus/pci/devices")).expect("a folder");
    let link = folder.join("sys/bus/pci/devices/0000:41:00.0");
    std::os::unix::fs::symlink("../../../devices/pci0000:40/0000:41:00.0", link).expect("a link");
    let machine = Topology::from_sysfs(&folder).expect("a machine");
    let near = machine.near_device(&folder, &"gpu:0".parse().expect("a name"));
    std::fs::remove_dir_all(&folder).expect("it is there");
    let near = near.expect("it is there");
    let nodes = simulate(1, move |runtime| {
        let home = Home::near_device_in(&runtime, &near).expect("its node can be a home");
        assert!(home.explain().contains("gpu:0 is near it"), "{}", home.explain());
        let queue = runtime.workqueue_builder("near").home(&home).build().expect("a queue");
        let nodes = Arc::new(Mutex::<_, Sim>::new_in(Vec::new()));
        let noted = Arc::clone(&nodes);
        on_cpu(0, move || {
            for _ in 0..20 {
                let noted = Arc::clone(&noted);
                drop(queue.spawn(move || noted.lock().push(node(Sim::current_cpu()))));
            }
            queue.flush().expect("the thread is not one of its workers");
        });
        Arc::clone(&nodes)
    });
    assert_eq!(*nodes.lock(), [1; 20]);
}
