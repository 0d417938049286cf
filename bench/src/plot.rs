//! Pictures of what was measured: lines over logarithmic axes, as SVG.

use plotters::prelude::*;

/// What an axis shows.
pub(crate) struct Axis(pub(crate) &'static str);

pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) points: Vec<(f64, f64)>,
}

pub(crate) struct Plot {
    /// Without its ending.
    pub(crate) file: String,
    pub(crate) title: &'static str,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) lines: Vec<Line>,
}

/// Told apart on white and by most eyes that mistake colours.
const COLOURS: [RGBColor; 8] = [
    RGBColor(90, 90, 90),
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 60, 160),
];

/// `1,000,000`, `0.25`
pub(crate) fn number(value: &f64) -> String {
    if *value < 1.0 {
        return format!("{value}");
    }
    let digits = format!("{value:.0}");
    let at = |index: usize| index > 0 && (digits.len() - index).is_multiple_of(3);
    digits.chars().enumerate().flat_map(|(index, digit)| at(index).then_some(',').into_iter().chain([digit])).collect()
}

impl Plot {
    pub(crate) fn svg(&self) -> Result<String, String> {
        let mut svg = String::new();
        self.draw(&mut svg).map_err(|error| error.to_string())?;
        Ok(svg)
    }

    /// From a power of ten below all of them to one above.
    fn range(&self, of: impl Fn(&(f64, f64)) -> f64) -> std::ops::Range<f64> {
        let values = || self.lines.iter().flat_map(|line| &line.points).map(&of).filter(|value| *value > 0.0);
        let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
        let low = if least.is_finite() { 10f64.powf(least.log10().floor()) } else { 1.0 };
        let high = if most > 0.0 { 10f64.powf((most * 1.05).log10().ceil()) } else { 10.0 };
        low..high.max(low * 10.0)
    }

    fn draw(&self, svg: &mut String) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
        let area = SVGBackend::with_string(svg, (900, 540)).into_drawing_area();
        area.fill(&WHITE)?;
        let (drawing, legend) = area.split_horizontally(660);
        let mut chart = ChartBuilder::on(&drawing)
            .caption(self.title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(78)
            .build_cartesian_2d(self.range(|point| point.0).log_scale(), self.range(|point| point.1).log_scale())?;
        chart
            .configure_mesh()
            .light_line_style(RGBColor(240, 240, 240))
            .bold_line_style(RGBColor(215, 215, 215))
            .x_desc(self.x.0)
            .y_desc(self.y.0)
            .x_label_formatter(&number)
            .y_label_formatter(&number)
            .label_style(("sans-serif", 14))
            .draw()?;
        for (at, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[at % COLOURS.len()];
            // The second time round the colours, dashes tell them apart.
            let points = || line.points.iter().copied().filter(|point| point.1 > 0.0);
            if at < COLOURS.len() {
                chart.draw_series(LineSeries::new(points(), colour.stroke_width(2)))?;
            } else {
                chart.draw_series(DashedLineSeries::new(points(), 6, 4, colour.stroke_width(2)))?;
            }
            chart.draw_series(points().map(|point| Circle::new(point, 3, colour.filled())))?;
            let y = 60 + 26 * i32::try_from(at).unwrap_or(0);
            let stroke = if at < COLOURS.len() { 3 } else { 1 };
            legend.draw(&PathElement::new(vec![(4, y), (26, y)], colour.stroke_width(stroke)))?;
            legend.draw(&Circle::new((15, y), 3, colour.filled()))?;
            legend.draw(&Text::new(line.name, (34, y - 8), ("sans-serif", 15)))?;
        }
        area.present()
    }
}
