//! (to be written)
use crate::held::Held;
use nearq_platform::Platform;
pub(crate) fn cancel<P: Platform>(_: &Held<'_, P>) -> bool {
    unreachable!()
}
pub(crate) fn come_again<P: Platform>(_: &Held<'_, P>) {
    unreachable!()
}
