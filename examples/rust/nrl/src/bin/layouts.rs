//! Prints the layouts of the crate's structs, for a comparison with those of C. Called as a program of its own, so that
//! no function of nrl is linked.
fn main() {
    for line in nrl::layouts() {
        println!("{line}");
    }
}
