//! The Rust examples on the pages of docs are compiled and run as documentation tests. `cargo xtask layers` refuses a page with such an
//! example that is not listed here.

macro_rules! pages {
    ($($name:ident $page:literal)*) => {
        $(
            #[doc = include_str!(concat!("../../docs/", $page))]
            struct $name;
        )*
    };
}

pages! {
    FromRayon "from-rayon.md"
    Home "home.md"
    Metrics "metrics.md"
    Near "near.md"
    Tokio "tokio.md"
    Tutorial "tutorial.md"
}
