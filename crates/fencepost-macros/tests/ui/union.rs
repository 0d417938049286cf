use fencepost::Event;

#[derive(Event)]
union Either {
    a: u8,
    b: u8,
}

fn main() {}
