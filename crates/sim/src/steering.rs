//! steering
