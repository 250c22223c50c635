//! Outlines of things, as signed distances: negative inside, in pixels.
//!
//! Source: the distance to a polygon follows the usual even-odd crossing test together with the
//! distance to each edge; that to an ellipse is scaled from the unit circle, exact on the border.

/// A point or a direction, in pixels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) x: f32,
    pub(super) y: f32,
}

/// Shorthand for a [`Point`].
pub(super) fn at(x: f32, y: f32) -> Point {
    Point { x, y }
}

/// A closed line around a thing.
#[derive(Clone, Debug)]
pub(super) enum Outline {
    Everything,
    Ellipse {
        centre: Point,
        radii: Point,
    },
    Ring {
        centre: Point,
        radii: Point,
        thickness: f32,
    },
    Box {
        centre: Point,
        half: Point,
        round: f32,
    },
    Polygon(Vec<Point>),
}

impl Outline {
    /// Corners of the upright rectangle around all points no further than `margin` from it, or
    /// `None` where it covers everything.
    pub(super) fn bounds(&self, margin: f32) -> Option<(Point, Point)> {
        let around = |c: Point, r: Point| (at(c.x - r.x, c.y - r.y), at(c.x + r.x, c.y + r.y));
        let wider = |r: Point, by: f32| {
            // The distance to an ellipse counts in units of its shorter radius.
            let factor = 1.0 + by / r.x.min(r.y);
            at(r.x * factor, r.y * factor)
        };
        match self {
            Outline::Everything => None,
            Outline::Ellipse { centre, radii } => Some(around(*centre, wider(*radii, margin))),
            Outline::Ring {
                centre,
                radii,
                thickness,
            } => Some(around(*centre, wider(*radii, margin + thickness))),
            Outline::Box { centre, half, .. } => {
                Some(around(*centre, at(half.x + margin, half.y + margin)))
            }
            Outline::Polygon(points) => {
                let start = (at(f32::MAX, f32::MAX), at(f32::MIN, f32::MIN));
                Some(points.iter().fold(start, |(low, high), p| {
                    let low = at(low.x.min(p.x - margin), low.y.min(p.y - margin));
                    (low, at(high.x.max(p.x + margin), high.y.max(p.y + margin)))
                }))
            }
        }
    }

    /// Distance of a point to the line, negative inside.
    pub(super) fn distance(&self, p: Point) -> f32 {
        match self {
            Outline::Everything => -1e6,
            Outline::Ellipse { centre, radii } => ellipse(p, *centre, *radii),
            Outline::Ring {
                centre,
                radii,
                thickness,
            } => ellipse(p, *centre, *radii).abs() - thickness,
            Outline::Box {
                centre,
                half,
                round,
            } => {
                let x = (p.x - centre.x).abs() - half.x + round;
                let y = (p.y - centre.y).abs() - half.y + round;
                let (ox, oy) = (x.max(0.0), y.max(0.0));
                (ox * ox + oy * oy).sqrt() + x.max(y).min(0.0) - round
            }
            Outline::Polygon(points) => polygon(p, points),
        }
    }
}

fn ellipse(p: Point, centre: Point, radii: Point) -> f32 {
    let (x, y) = ((p.x - centre.x) / radii.x, (p.y - centre.y) / radii.y);
    ((x * x + y * y).sqrt() - 1.0) * radii.x.min(radii.y)
}

fn polygon(p: Point, points: &[Point]) -> f32 {
    let Some(mut from) = points.last().copied() else {
        return 1e6;
    };
    let (mut nearest, mut inside) = (f32::MAX, false);
    for &to in points {
        let edge = at(to.x - from.x, to.y - from.y);
        let offset = at(p.x - from.x, p.y - from.y);
        let length = (edge.x * edge.x + edge.y * edge.y).max(1e-6);
        let along = ((offset.x * edge.x + offset.y * edge.y) / length).clamp(0.0, 1.0);
        let gap = at(offset.x - edge.x * along, offset.y - edge.y * along);
        nearest = nearest.min(gap.x * gap.x + gap.y * gap.y);
        let crosses = (from.y > p.y) != (to.y > p.y);
        if crosses && offset.x < edge.x * offset.y / edge.y {
            inside = !inside;
        }
        from = to;
    }
    let distance = nearest.sqrt();
    if inside { -distance } else { distance }
}

/// A polygon around a centre whose radius is `radius(i)` for each of its `n` directions.
pub(super) fn radial(centre: Point, n: usize, turn: f32, radius: impl Fn(usize) -> f32) -> Outline {
    Outline::Polygon(
        (0..n)
            .map(|i| {
                let angle = turn + i as f32 * std::f32::consts::TAU / n as f32;
                let (sin, cos) = libm::sincosf(angle);
                at(centre.x + cos * radius(i), centre.y + sin * radius(i))
            })
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_negative_inside_and_positive_outside() {
        let centre = at(10.0, 10.0);
        let outlines = [
            Outline::Ellipse {
                centre,
                radii: at(5.0, 4.0),
            },
            Outline::Box {
                centre,
                half: at(5.0, 4.0),
                round: 1.0,
            },
            radial(centre, 5, 0.0, |_| 5.0),
        ];

        for outline in outlines {
            assert!(outline.distance(centre) < 0.0, "{outline:?}");
            assert!(outline.distance(at(20.0, 10.0)) > 3.0, "{outline:?}");
        }
    }

    #[test]
    fn a_ring_has_a_hole() {
        let ring = Outline::Ring {
            centre: at(0.0, 0.0),
            radii: at(10.0, 10.0),
            thickness: 2.0,
        };

        assert!(ring.distance(at(0.0, 0.0)) > 0.0);
        assert!(ring.distance(at(10.0, 0.0)) < 0.0);
        assert!(ring.distance(at(13.0, 0.0)) > 0.0);
    }
}
