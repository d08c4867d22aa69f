//! What the user wants explained: a connection, one of its ends, or an address.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

/// What is asked about, in the syntax of `ss`, of logs, or of people.
///
/// - `10.9.0.1:4711-10.2.0.1:443`: a connection, by its ends in either order. Between them may be `-`, `->`, `→`, a comma, a
///   slash, an equals sign or spaces.
/// - `10.2.0.1:443`: the connections with this end.
/// - `10.2.0.1`: what goes to an address, or begins at it if it is this host's.
///
/// An address of IPv6 stands in brackets where a port follows. A scope (`%eth0`) means nothing here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// The connection with these ends, in any order.
    Connection(SocketAddr, SocketAddr),
    /// The connections with this end.
    End(SocketAddr),
    /// An address.
    Address(IpAddr),
}

impl FromStr for Question {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let separators = |c: char| c.is_whitespace() || ['-', '>', '→', ',', '/', '=', '<'].contains(&c);
        let parts: Vec<_> = text.split(separators).filter(|part| !part.is_empty()).collect();
        let wrong = || {
            format!(
                "`{text}` is no connection and no address; write LOCAL:PORT-REMOTE:PORT, such as \
                 10.9.0.1:4711-10.2.0.1:443 or [2001:db8::1]:4711-[2001:db8::2]:443, or an address"
            )
        };
        match parts.as_slice() {
            [one] => address(one).map(Question::Address).or_else(|| end(one).map(Question::End)).ok_or_else(wrong),
            [one, other] => match (end(one), end(other)) {
                (Some(one), Some(other)) => Ok(Question::Connection(one, other)),
                _ => Err(wrong()),
            },
            _ => Err(wrong()),
        }
    }
}

/// An address, perhaps in brackets, perhaps with a scope; that of IPv4 inside IPv6 is one of IPv4.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let bare = bare.split_once('%').map_or(bare, |(address, _)| address);
    bare.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

/// An address and a port.
fn end(text: &str) -> Option<SocketAddr> {
    let (before, port) = text.rsplit_once(':')?;
    let address = address(before)?;
    // Without brackets it is unknown where an address of IPv6 ends, unless the whole of it stands before the port.
    let bare = before.parse::<Ipv6Addr>().is_ok() && before.matches(':').count() < 7 && !before.contains("::ffff:");
    if bare {
        return None;
    }
    Some(SocketAddr::new(address, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Question {
        text.parse().unwrap()
    }

    #[test]
    fn a_connection_is_read_however_people_write_it() {
        let v4 = Question::Connection("10.9.0.1:4711".parse().unwrap(), "10.2.0.1:443".parse().unwrap());
        for between in ["-", "->", " - ", " → ", ",", ", ", "   ", "=", " <-> ", "/"] {
            assert_eq!(read(&format!("10.9.0.1:4711{between}10.2.0.1:443")), v4, "{between:?}");
        }
        assert_eq!(read("[::ffff:10.9.0.1]:4711 [::ffff:10.2.0.1]:443"), v4, "as ss prints mapped sockets");
        let v6 = Question::Connection("[2001:db8::1]:4711".parse().unwrap(), "[2001:db8::2]:443".parse().unwrap());
        assert_eq!(read("[2001:db8::1]:4711-[2001:db8::2]:443"), v6);
        assert_eq!(read("[2001:db8::1%eth0]:4711 [2001:db8::2]:443"), v6);
        assert_eq!(read("2001:db8:0:0:0:0:0:1:4711 2001:db8:0:0:0:0:0:2:443"), v6, "all eight groups");
    }

    #[test]
    fn an_end_and_an_address_are_told_apart() {
        assert_eq!(read("10.2.0.1:443"), Question::End("10.2.0.1:443".parse().unwrap()));
        assert_eq!(read("[2001:db8::2]:443"), Question::End("[2001:db8::2]:443".parse().unwrap()));
        for text in ["2001:db8::2", "[2001:db8::2]", "2001:db8::2%eth1"] {
            assert_eq!(read(text), Question::Address("2001:db8::2".parse().unwrap()));
        }
        assert_eq!(read("::ffff:10.2.0.1"), Question::Address("10.2.0.1".parse().unwrap()));
    }

    #[test]
    fn what_is_neither_is_refused_with_an_example() {
        for text in [
            "",
            "blue",
            "10.2.0.1:x",
            "10.2.0.1:70000",
            "10.2.0.1-10.2.0.2",
            "1.1.1.1:1 2.2.2.2:2 3.3.3.3:3",
            "2001:db8::1:4711-[::1]:1",
        ] {
            let said = text.parse::<Question>().unwrap_err();
            assert!(said.starts_with(&format!("`{text}` is no connection and no address; write ")), "{said}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_the_reader(text: String) {
            let _ = text.parse::<Question>();
        }

        #[test]
        fn what_is_printed_is_read_back(a: u128, b: u128, v4: bool, ports: (u16, u16)) {
            let address = |bits: u128| match v4 {
                true => IpAddr::from((bits as u32).to_be_bytes()),
                false => IpAddr::from(Ipv6Addr::from(bits)).to_canonical(),
            };
            let (one, other) = (SocketAddr::new(address(a), ports.0), SocketAddr::new(address(b), ports.1));
            prop_assert_eq!(read(&format!("{one}-{other}")), Question::Connection(one, other));
            prop_assert_eq!(read(&one.to_string()), Question::End(one));
            prop_assert_eq!(read(&one.ip().to_string()), Question::Address(one.ip()));
        }
    }
}
