//! `wideroom client`: the JavaScript client, as a package of npm.

use super::Program;

#[test]
fn the_package_is_written_into_a_folder_of_its_own() {
    let program = Program::new();
    let run = |folder: &str| program.run(&["client", folder]);
    for _ in 0..2 {
        run("vendor/wideroom-client").succeeded();
    }
    let folder = program.data().with_file_name("vendor/wideroom-client");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert!(read("package.json").contains("\"name\": \"wideroom-client\""));
    assert_eq!(
        read("index.js"),
        include_str!("../../src/server/pages/client/index.js")
    );
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/server/pages/client");
    for file in std::fs::read_dir(source).unwrap() {
        let name = file.unwrap().file_name();
        assert!(folder.join(&name).is_file(), "{name:?} is in the program");
    }
    // A folder with other files stays as it is.
    let failed = run("vendor");
    assert!(
        failed.stderr.contains("holds other files"),
        "{}",
        failed.stderr
    );
}
