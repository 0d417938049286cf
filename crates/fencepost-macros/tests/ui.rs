//! What the compiler says to each mistake: `tests/ui/NAME.rs` is the mistake, `NAME.stderr` the answer, field and remedy named.
//! After a change that is meant: `TRYBUILD=overwrite cargo test --workspace --test ui`, and read the difference.

#[test]
fn every_mistake_is_answered_with_its_place_and_the_remedy() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
    cases.compile_fail("tests/ui/*.rs");
}
