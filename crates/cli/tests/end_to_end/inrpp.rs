//! `sidestep inrpp`: what it reports about its file and its keys.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
};

use serde_json::Value;

use crate::common::Room;

#[test]
fn the_file_of_an_inrpp_router_is_checked_with_line_and_caret() {
    let room = Room::new();
    let example = include_str!("../../../../packaging/inrpp.toml");
    let good = room.write("good.toml", example);
    let ended = room.run(&["inrpp", "--check", "--config", &good]);
    ended.is_fine();
    assert!(ended.stdout.starts_with("in order: r0, 2 neighbours, 1 edges, "), "{ended:?}");
    assert!(ended.stdout.contains("warning: the key /etc/sidestep/inrpp/r1.key: "), "{ended:?}");
    let json = room.run(&["inrpp", "--check", "--json", "--config", &good]);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&json["schema"], &json["name"], &json["neighbours"]), (&1.into(), &"r0".into(), &2.into()));
    let bad = room.write("bad.toml", &example.replace("rate = \"1 Gbit/s\"", "rate = \"0 bit/s\""));
    let ended = room.run(&["inrpp", "--check", "--config", &bad]);
    assert!(ended.complaint(2).contains("must be above zero"), "{ended:?}");
    assert!(ended.stderr.contains('^'), "{ended:?}");
    assert!(room.run(&["inrpp"]).complaint(2).contains("needs --config FILE"));
    room.run(&["inrpp", "--check"]).complaint(2);
}

#[test]
fn a_key_that_sidestep_makes_is_taken_and_one_that_others_may_read_is_refused() {
    let room = Room::new();
    let made = room.run(&["inrpp", "key"]);
    made.is_fine();
    let key = room.write("r1.key", &made.stdout);
    let file = format!(
        "[inrpp]\nname = \"r0\"\n[[neighbour]]\nname = \"r1\"\ninterface = \"e\"\nrate = \"auto\"\nremote = \"::1\"\nkey_file = \"{key}\"\n"
    );
    let file = room.write("inrpp.toml", &file);
    let check = |mode| {
        fs::set_permissions(&key, Permissions::from_mode(mode)).unwrap();
        room.run(&["inrpp", "--check", "--config", &file])
    };
    assert!(check(0o644).complaint(2).contains("chmod 600"));
    let ended = check(0o600);
    ended.is_fine();
    assert!(!ended.stdout.contains("warning"), "{ended:?}");
    fs::write(&key, "no key").unwrap();
    assert!(check(0o600).complaint(2).contains("32 hexadecimal digits"));
}
