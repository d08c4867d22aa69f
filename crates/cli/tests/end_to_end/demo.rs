//! The demonstration in its short form: the simulator's.

use crate::common::Room;

#[test]
fn the_demonstration_explains_when_one_needs_which_by_what_it_measured() {
    let room = Room::new();
    let done = room.run(&["demo", "--sim", "--out", "demo"]);
    done.is_fine();
    let text: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(room.path("demo/demo.json")).unwrap()).unwrap();
    let verdict = |case: &str, other: &str| {
        let mut all = text["verdicts"].as_array().unwrap().iter();
        let one = all.find(|one| one["case"] == case && one["other"] == other);
        one.unwrap_or_else(|| panic!("no {case}, {other}: {text}")).clone()
    };
    // Dice are as good where paths are alike; where they differ and one dies they are many times slower.
    assert_eq!(verdict("equal-paths", "random")["says"], "no-difference");
    assert_eq!(verdict("equal-paths", "tcp")["says"], "better");
    // Routers that hash carry as much, and share it less evenly.
    assert_ne!(verdict("equal-paths", "ecmp")["says"], "better");
    assert_eq!(verdict("slowest-connection", "ecmp")["says"], "better");
    let dice = verdict("unlike-paths", "random");
    assert_eq!(dice["says"], "better");
    assert!(dice["value"].as_f64().unwrap() > 4.0 * dice["pathchanger"].as_f64().unwrap(), "{dice}");
    assert_ne!(verdict("before-the-failure", "tcp")["says"], "better");
    let lesson = text["lesson"].as_str().unwrap();
    assert!(lesson.starts_with("Use the path changer where paths differ or die silently ("), "{lesson}");
    assert!(lesson.contains("no difference between it and dice") && lesson.contains("plain TCP is enough"), "{lesson}");
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert!(lines.contains(&lesson), "{}", done.stdout);
    assert!(lines.last().unwrap().starts_with("Simulated in virtual time"), "{}", done.stdout);
    assert_eq!((&text["trusted"], &text["doubts"]), (&true.into(), &serde_json::json!([])));
    let page = std::fs::read_to_string(room.path("demo/index.html")).unwrap();
    for wanted in [
        "equal/index.html",
        "unlike/index.html",
        "Left out: programs run in the lab only",
        "done within 0.5 s",
        "with ECMP",
    ] {
        assert!(page.contains(wanted), "no {wanted}");
    }
    assert!(room.path("demo/equal/index.html").is_file() && room.path("demo/unlike/index.html").is_file());
}
