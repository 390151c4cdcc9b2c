//! Compiles the policy for user space, where that is asked for.

fn main() {
    println!("cargo::rerun-if-changed=policy");
    #[cfg(feature = "harness")]
    cc::Build::new().file("policy/harness.c").opt_level(2).warnings(true).compile("nearq_policy");
}
