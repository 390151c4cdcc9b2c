//! Has bindgen write the names of the policy's header for Rust, and compiles the header for user space, where that is asked for.

fn main() {
    println!("cargo::rerun-if-changed=policy");
    #[cfg(feature = "layout")]
    header::write();
}

#[cfg(feature = "layout")]
mod header {
    use std::env;
    use std::path::PathBuf;

    use bindgen::callbacks::{EnumVariantValue, ParseCallbacks};

    /// Writes `policy.rs`: the structures and constants, and with the feature `harness` the functions, which are compiled too.
    pub(super) fn write() {
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
        let mut header = bindgen::builder()
            .header("policy/types.h")
            .header("policy/policy.h")
            .allowlist_item("(nq|NQ)(_.*)?")
            .rustified_enum("nq_(why|take)")
            .parse_callbacks(Box::new(Variants))
            .prepend_enum_name(false)
            .generate_comments(false)
            .derive_default(true)
            .derive_eq(true)
            // Those are not zero.
            .no_default("nq_weights");
        let functions = out.join("policy.c");
        header = if cfg!(feature = "harness") {
            header.wrap_static_fns(true).wrap_static_fns_path(&functions)
        } else {
            header.ignore_functions()
        };
        let written = header.generate().expect("libclang reads the header");
        written.write_to_file(out.join("policy.rs")).expect("cargo's folder can be written");
        #[cfg(feature = "harness")]
        cc::Build::new()
            .file(functions)
            .include(".")
            .opt_level(2)
            .warnings(true)
            .compile("nearq_policy");
    }

    /// Names of variants: `NQ_WHY_TAKEN_BACK` is `TakenBack`.
    #[derive(Debug)]
    struct Variants;

    impl ParseCallbacks for Variants {
        fn enum_variant_name(
            &self,
            name: Option<&str>,
            variant: &str,
            _: EnumVariantValue,
        ) -> Option<String> {
            let prefix = name?.strip_prefix("enum ")?.to_uppercase() + "_";
            let words = variant.strip_prefix(&prefix)?.split('_');
            Some(words.map(|word| word[..1].to_owned() + &word[1..].to_lowercase()).collect())
        }
    }
}
