//! Runs bindgen on the policy's header if the feature `layout` is enabled.

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

    /// Writes `policy.rs`: the structures and constants.
    pub(super) fn write() {
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
        let written = bindgen::builder()
            .header("policy/types.h")
            .header("policy/policy.h")
            .allowlist_item("(nq|NQ)(_.*)?")
            .rustified_enum("nq_(why|take|group)")
            .parse_callbacks(Box::new(Variants))
            .prepend_enum_name(false)
            .generate_comments(false)
            .derive_default(true)
            .derive_eq(true)
            // The default weights are not zero.
            .no_default("nq_weights")
            .ignore_functions()
            .generate()
            .expect("libclang reads the header");
        written.write_to_file(out.join("policy.rs")).expect("cargo's folder can be written");
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
