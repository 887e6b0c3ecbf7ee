//! A picture of what was requested, allocated and reserved over time.

use super::player::Point;
use crate::failure::Failure;
use plotters::prelude::*;

const SIZE: (u32, u32) = (1200, 600);
const GIB: f64 = (1_u64 << 30) as f64;

/// Writes the curve of one repetition as SVG.
pub(super) fn write(path: &str, title: &str, curve: &[Point]) -> Result<(), Failure> {
    let mut text = String::new();
    draw(&mut text, title, curve).map_err(|error| Failure::new(format!("--plot: {error}")))?;
    std::fs::write(path, text).map_err(|error| Failure::new(format!("--plot {path}: {error}")))
}

/// Its name, its colour, and what it shows.
type Line = (&'static str, RGBColor, fn(&Point) -> u64);

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw(text: &mut String, title: &str, curve: &[Point]) -> Drawn {
    let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let ops = curve.last().map_or(1, |point| point.op.max(1));
    let most = curve.iter().map(|p| p.reserved.max(p.allocated)).max().unwrap_or(0);
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 20))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0..ops, 0.0..(most as f64 / GIB * 1.05).max(1e-6))?;
    chart.configure_mesh().x_desc("operation").y_desc("GiB").draw()?;
    let lines: [Line; 3] = [
        ("reserved", RED, |point| point.reserved),
        ("allocated", BLUE, |point| point.allocated),
        ("requested", BLACK, |point| point.requested),
    ];
    for (name, colour, of) in lines {
        let points = curve.iter().map(|point| (point.op, of(point) as f64 / GIB));
        let line = chart.draw_series(LineSeries::new(points, &colour))?;
        line.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour));
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_has_three_lines_with_names() {
        let point = |op, requested| Point { op, requested, allocated: requested + 1, reserved: 1 << 31 };
        let mut text = String::new();
        draw(&mut text, "t.csv", &[point(0, 0), point(5, 1 << 30), point(10, 7)]).expect("drawn");
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"), "{text}");
        for part in ["requested", "allocated", "reserved", "GiB", "operation", "t.csv"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.matches("<polyline").count() >= 3);
        draw(&mut String::new(), "empty", &[]).expect("drawn");
    }
}
