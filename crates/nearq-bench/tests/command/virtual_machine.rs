//! `nearq bench home` under a real kernel with several nodes, in a virtual machine.
//!
//! `nearq-command/tests/guest` lists the requirements; if something is missing, one line says so and nothing is tested.

#[path = "../../../nearq-command/tests/guest/mod.rs"]
mod guest;

use guest::{boot_as, script, static_program};
use serde_json::Value;

/// Two nodes of two CPUs: the overloaded node is the home of four tasks, of which two leave. A second later, and for the nine seconds that
/// follow, the other two tasks are at home. On a busy host the guest's CPUs stand still for long periods, so it is enough if one boot of
/// three succeeds.
#[test]
fn strays_of_an_overloaded_home_come_back_under_a_real_kernel() {
    let Some(script) = script() else { return };
    let arguments = ["--package", "nearq-bench", "--bin", "nearq-bench"];
    let Some(program) = static_program(&arguments, "nearq-bench") else { return };
    let experiment = ["bench", "home", "--scenario", "overload", "--runs", "1", "--json", "-"];
    let mut outputs = Vec::new();
    for _ in 0..3 {
        let options = ["-T", "400", "-t", "2:1:2:1:2"];
        let Some(output) = boot_as(&script, &options, &[], &program, &experiment) else { return };
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}\n{errors}", output.status);
        let text = String::from_utf8_lossy(&output.stdout);
        // The guest has one console for standard output and standard error, and a progress bar is drawn on it.
        let begin = text.find("{\n").unwrap_or(0);
        let mut documents = serde_json::Deserializer::from_str(&text[begin..]).into_iter();
        let json: Value = documents
            .next()
            .and_then(Result::ok)
            .unwrap_or_else(|| panic!("no JSON in\n{text}\n{errors}"));
        assert_eq!(json["parameters"]["nodes"].as_array().map(Vec::len), Some(2));
        let mean = |metric: &str| {
            let rows = json["rows"].as_array().expect("rows");
            let found = rows.iter().find(|row| row["row"] == "homes" && row["metric"] == metric);
            found.and_then(|row| row["mean"].as_f64())
        };
        let reached = [mean("home_percent"), mean("node_crossings"), mean("strays")];
        if let [Some(home), Some(crossings), Some(0.0)] = reached
            && home >= 95.0
            && crossings > 0.0
        {
            return;
        }
        outputs.push(format!("{text}\n{errors}"));
    }
    panic!("{}", outputs.join("\n"));
}
