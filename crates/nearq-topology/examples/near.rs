//! Prints the nodes that devices of a machine are near: `near ROOT DEVICE...`, where ROOT is `/` or a folder with a machine's `/sys`.
//!
//! `.ci/devices.py` compares them with those that hwloc finds.

use nearq_topology::{DeviceName, Topology};
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let root =
        arguments.next().ok_or("near ROOT DEVICE...: give a folder with a machine's /sys, or /")?;
    let root = Path::new(&root);
    let machine = Topology::from_sysfs(root)?;
    for argument in arguments {
        let name: DeviceName = argument.parse()?;
        match machine.near_device(root, &name) {
            Ok(near) => println!("{name} {:?}", near.nodes),
            Err(error) => println!("{name} refused: {error}"),
        }
    }
    Ok(())
}
