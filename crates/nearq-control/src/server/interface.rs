//! The description of the server for varlink's tools: `org.varlink.service`.

use serde::{Deserialize, Serialize};

use super::call::{Call, Error, SERVICE, reply};
use crate::protocol::INTERFACE;

/// The interface in varlink's language, with comments.
pub(super) const DESCRIPTION: &str = include_str!("../../nearq.control1.varlink");

/// The interface that every varlink service has.
const SERVICE_DESCRIPTION: &str = "\
# What every varlink service says about itself.
interface org.varlink.service

# The vendor of the service, and its interfaces.
method GetInfo() -> (
  vendor: string,
  product: string,
  version: string,
  url: string,
  interfaces: []string
)

# The description of an interface in this language.
method GetInterfaceDescription(interface: string) -> (description: string)

error InterfaceNotFound (interface: string)
error MethodNotFound (method: string)
error MethodNotImplemented (method: string)
error InvalidParameter (parameter: string)
error PermissionDenied ()
error ExpectedMore ()
";

#[derive(Serialize)]
struct Info {
    vendor: &'static str,
    product: &'static str,
    version: &'static str,
    url: &'static str,
    interfaces: [&'static str; 2],
}

#[derive(Deserialize)]
struct Wanted {
    interface: String,
}

#[derive(Serialize)]
struct Description {
    description: &'static str,
}

/// Answers a call of `org.varlink.service`.
pub(super) fn answer(method: &str, call: &Call<'_>) -> Result<Vec<u8>, Error> {
    match method {
        "GetInfo" => {
            let info = Info {
                vendor: "nearq",
                product: "nearq",
                version: env!("CARGO_PKG_VERSION"),
                url: "",
                interfaces: [SERVICE, INTERFACE],
            };
            Ok(reply(&info, false))
        }
        "GetInterfaceDescription" => {
            let Wanted { interface } = call.parameters()?;
            let description = match interface.as_str() {
                SERVICE => SERVICE_DESCRIPTION,
                INTERFACE => DESCRIPTION,
                _ => return Err(Error::InterfaceNotFound { interface }),
            };
            Ok(reply(&Description { description }, false))
        }
        _ => Err(Error::MethodNotFound { method: call.method().to_owned() }),
    }
}
