//! What the commands do that belong to no system: the controller's, and those about the machine and the program itself.

pub mod controller;
pub mod doctor;
pub mod manual;
