//! The shim before each packet between neighbours.
