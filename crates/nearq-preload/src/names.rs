//! Decides by a program's names whether its mutexes are replaced.

/// Whether a program with these names is for us, according to the comma-separated lists `only` and `not`.
pub(crate) fn chosen(names: &[&[u8]], only: Option<&[u8]>, not: Option<&[u8]>) -> bool {
    let on = |list: &[u8]| {
        list.split(|byte| *byte == b',').any(|listed| {
            let listed = listed.trim_ascii();
            !listed.is_empty() && names.iter().any(|name| base(name) == base(listed))
        })
    };
    only.is_none_or(on) && !not.is_some_and(on)
}

/// The last part of a path.
pub(crate) fn base(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_selected(only: Option<&str>, not: Option<&str>) -> bool {
        let names: [&[u8]; 2] = [b"/usr/bin/python3.11", b"/srv/tool"];
        chosen(&names, only.map(str::as_bytes), not.map(str::as_bytes))
    }

    #[test]
    fn programs_are_selected_by_either_name() {
        assert!(is_selected(None, None));
        assert!(is_selected(Some("redis-server, python3.11"), None));
        assert!(is_selected(Some("/opt/tool"), Some("java")));
        assert!(!is_selected(Some("redis-server"), None));
        assert!(!is_selected(None, Some("java,tool")));
        assert!(!is_selected(Some("tool"), Some("python3.11")));
    }

    #[test]
    fn an_empty_list_selects_no_program() {
        assert!(!is_selected(Some(""), None));
        assert!(is_selected(None, Some("")));
        assert!(!is_selected(Some(",,"), None));
    }
}
