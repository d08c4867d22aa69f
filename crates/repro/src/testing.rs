//! What tests of pictures have in common.

/// The places of a picture that show something where the pointer rests: x, y, width and height, and what each shows.
pub(crate) fn told(svg: &str) -> Vec<([String; 4], String)> {
    let places = svg.split("<rect ").filter_map(|place| place.split_once("<title>"));
    places
        .filter_map(|(place, says)| {
            let value = |name: &str| Some(place.split_once(&format!("{name}=\""))?.1.split('"').next()?.to_owned());
            let says = says.split_once("</title>")?.0;
            let says = says.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
            Some(([value("x")?, value("y")?, value("width")?, value("height")?], says))
        })
        .collect()
}
