//! Distinguishes labels for poses from outlines: both are lines of many numbers.
//!
//! A line for a pose has a box, then x and y of points, with or without a third number. Read as an
//! outline, it gives a wrong box. The points of a pose lie in its box, and all lines of a dataset have
//! the same number of points. Outlines have both properties by chance: small ones that begin left of
//! the middle of the image often lie in the "box" of their first two points. So lines must also make
//! poor outlines.

/// Lines that are examined as outlines.
const EXAMINED: usize = 20;

/// Largest number of points whose outline is searched for crossings.
const MAX_POINTS: usize = 1100;

/// Coordinates may lie outside the box by this share of its sides, plus [`ROUNDING`].
const TOLERANCE: f64 = 0.02;

/// Error of rounded coordinates.
const ROUNDING: f64 = 0.002;

/// Evidence from the lines of a dataset.
#[derive(Default)]
pub(super) struct PoseEvidence {
    /// Lines of more than four numbers.
    lines: usize,
    /// Numbers of each of these lines.
    numbers: usize,
    /// Whether their numbers differ.
    differs: bool,
    /// Lines whose points lie in the box of their first numbers.
    poses: usize,
    /// Examined lines that make a poor outline and a good pose.
    strong: usize,
    /// Lines whose second point as an outline is far from the others.
    spikes: usize,
    /// File and line of the first strong line, or of the first pose.
    place: String,
}

impl PoseEvidence {
    /// Adds the numbers of a line after its class. `place` names its file and line.
    pub(super) fn add(&mut self, numbers: &[f64], place: impl FnOnce() -> String) {
        if numbers.len() <= 4 {
            return;
        }
        self.lines += 1;
        self.differs |= self.lines > 1 && self.numbers != numbers.len();
        self.numbers = numbers.len();
        if self.differs {
            return;
        }
        let Some(pose) = Pose::of(numbers) else {
            return;
        };
        self.poses += 1;
        self.spikes += usize::from(pose.has_spike());
        let is_strong = self.lines <= EXAMINED && pose.fits_better(numbers);
        if self.poses == 1 || is_strong && self.strong == 0 {
            self.place = place();
        }
        self.strong += usize::from(is_strong);
    }

    /// Returns the error of lines that are labels for poses. None for outlines.
    pub(super) fn problem(&self) -> Option<String> {
        let are_poses = !self.differs && self.poses > 0 && self.poses * 4 >= self.lines * 3;
        let are_strong = self.strong * 4 >= self.lines.min(EXAMINED);
        // A box with one point is a triangle, which no side crosses.
        let are_triangles = self.numbers == 6 && self.lines >= EXAMINED;
        let have_spikes = are_triangles && self.spikes * 10 >= self.lines * 7;
        (are_poses && (are_strong || have_spikes)).then(|| {
            let corners = match self.numbers {
                8 => ", or set corners=True for rotated boxes",
                _ => "",
            };
            format!(
                "{}: the {} values are class, box and points of a pose, or an outline; labels for \
                 poses are not read: keep the first five values of each line, or begin an outline \
                 at another of its points{corners}",
                self.place,
                self.numbers + 1
            )
        })
    }
}

/// A line read as a box with points.
struct Pose {
    /// Centre x, centre y, width, height.
    bounds: [f64; 4],
    /// The points that are visible.
    visible: Vec<[f64; 2]>,
    points: usize,
    /// Whether each point has a third number.
    has_visibility: bool,
}

impl Pose {
    /// Reads numbers as a box inside the image that has all visible points. None if they are not.
    fn of(numbers: &[f64]) -> Option<Pose> {
        let (&bounds, rest) = numbers.split_first_chunk::<4>()?;
        let [x, y, width, height] = bounds;
        let is_inside = |middle: f64, side: f64| {
            side > 0.0 && middle - side / 2.0 >= -0.01 && middle + side / 2.0 <= 1.01
        };
        if !is_inside(x, width) || !is_inside(y, height) {
            return None;
        }
        let within = |at: f64, middle: f64, side: f64| {
            (at - middle).abs() <= side * (0.5 + TOLERANCE) + ROUNDING
        };
        let lies_in = |[a, b]: &[f64; 2]| within(*a, x, width) && within(*b, y, height);
        let pose = |visible: Vec<[f64; 2]>, points, has_visibility| {
            visible.iter().all(lies_in).then_some(Pose {
                bounds,
                visible,
                points,
                has_visibility,
            })
        };
        let (triples, left) = rest.as_chunks::<3>();
        if left.is_empty()
            && triples
                .iter()
                .all(|[.., seen]| [0.0, 1.0, 2.0].contains(seen))
        {
            let visible = triples.iter().filter(|[.., seen]| *seen > 0.0);
            let visible = visible.map(|&[a, b, _]| [a, b]).collect();
            if let Some(found) = pose(visible, triples.len(), true) {
                return Some(found);
            }
        }
        let (pairs, left) = rest.as_chunks::<2>();
        // Tools write zeros for a point that is not in the image.
        let visible = pairs.iter().filter(|point| **point != [0.0, 0.0]);
        let visible = visible.copied().collect();
        left.is_empty().then(|| pose(visible, pairs.len(), false))?
    }

    /// Whether the numbers are a pose rather than an outline.
    fn fits_better(&self, numbers: &[f64]) -> bool {
        let is_marked = self.has_visibility && self.points >= 4;
        let is_unseen = self.visible.is_empty() && self.points >= 2;
        let (outline, _) = numbers.as_chunks::<2>();
        is_marked || is_unseen || crosses_itself(outline) || self.fills_box()
    }

    /// Whether width and height, as a point of an outline, lie far from all other points.
    fn has_spike(&self) -> bool {
        let [x, y, width, height] = self.bounds;
        let is_far = |of: usize, first: f64, second: f64| {
            let at = || self.visible.iter().map(|point| point[of]);
            let (low, high) = (at().fold(first, f64::min), at().fold(first, f64::max));
            let extent = high - low;
            second < low - extent || second > high + extent
        };
        is_far(0, x, width) || is_far(1, y, height)
    }

    /// Whether the points lie on all sides of the centre of the box, and far apart.
    fn fills_box(&self) -> bool {
        let [x, y, width, height] = self.bounds;
        let extent = |of: usize| {
            let at = || self.visible.iter().map(|point| point[of]);
            at().fold(f64::MIN, f64::max) - at().fold(f64::MAX, f64::min)
        };
        if self.visible.len() < 3 || extent(0) < 0.6 * width || extent(1) < 0.6 * height {
            return false;
        }
        let angles = self.visible.iter().map(|[a, b]| (b - y).atan2(a - x));
        let mut angles: Vec<f64> = angles.collect();
        angles.sort_by(f64::total_cmp);
        let turn = angles.first().map(|first| first + std::f64::consts::TAU);
        let next = angles.iter().copied().skip(1).chain(turn);
        let mut gaps = angles.iter().zip(next).map(|(angle, next)| next - angle);
        gaps.all(|gap| gap < std::f64::consts::PI)
    }
}

/// Whether two sides of an outline cross.
fn crosses_itself(outline: &[[f64; 2]]) -> bool {
    if outline.len() > MAX_POINTS {
        return false;
    }
    let side = |at: usize| (outline[at], outline[(at + 1) % outline.len()]);
    (0..outline.len())
        .any(|one| (one + 1..outline.len()).any(|other| crosses(side(one), side(other))))
}

/// Whether two lines cross between their ends.
fn crosses((a, b): ([f64; 2], [f64; 2]), (c, d): ([f64; 2], [f64; 2])) -> bool {
    let turn = |[ax, ay]: [f64; 2], [bx, by]: [f64; 2], [cx, cy]: [f64; 2]| {
        (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)
    };
    turn(a, b, c) * turn(a, b, d) < 0.0 && turn(c, d, a) * turn(c, d, b) < 0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_core::random::hash;

    /// Uniform numbers from 0 to 1 by a seed.
    struct Uniform(u64, u64);

    impl Uniform {
        fn next(&mut self) -> f64 {
            self.1 += 1;
            (hash(&[self.0, self.1]) >> 11) as f64 / (1_u64 << 53) as f64
        }

        fn between(&mut self, low: f64, high: f64) -> f64 {
            low + (high - low) * self.next()
        }
    }

    /// An outline around a centre, which begins at its highest point, or at any point.
    fn outline(random: &mut Uniform, points: usize) -> Vec<f64> {
        let size = 0.01 * 50_f64.powf(random.next());
        let [rx, ry] = [0, 1].map(|_| size * random.between(0.5, 1.0) / 2.0);
        let (x, y) = (random.between(rx, 1.0 - rx), random.between(ry, 1.0 - ry));
        let roughness = random.between(0.0, 0.6);
        let step = std::f64::consts::TAU / points as f64;
        let mut corners: Vec<[f64; 2]> = (0..points)
            .map(|at| {
                let angle = step * (at as f64 + random.between(0.0, 0.9));
                let radius = 1.0 - roughness * random.next();
                [x + rx * radius * angle.cos(), y + ry * radius * angle.sin()]
            })
            .collect();
        let highest = (0..points).min_by(|a, b| corners[*a][1].total_cmp(&corners[*b][1]));
        let begin = match random.next() < 0.5 {
            true => highest.expect("a corner"),
            false => (random.next() * points as f64) as usize,
        };
        corners.rotate_left(begin);
        if random.next() < 0.5 {
            corners.reverse();
        }
        corners.as_flattened().to_vec()
    }

    /// A box with points anywhere in it.
    fn pose(random: &mut Uniform, points: usize, visibility: Option<f64>) -> Vec<f64> {
        let [width, height] = [0, 1].map(|_| random.between(0.05, 0.9));
        let x = random.between(width / 2.0, 1.0 - width / 2.0);
        let y = random.between(height / 2.0, 1.0 - height / 2.0);
        let mut line = vec![x, y, width, height];
        for _ in 0..points {
            line.push(x + width * random.between(-0.5, 0.5));
            line.push(y + height * random.between(-0.5, 0.5));
            line.extend(visibility);
        }
        line
    }

    /// Share of datasets that are taken for poses.
    fn share(datasets: usize, mut lines: impl FnMut(usize) -> Vec<Vec<f64>>) -> f64 {
        let mut taken = 0;
        for number in 0..datasets {
            let mut evidence = PoseEvidence::default();
            for line in lines(number) {
                evidence.add(&line, || "a.txt, line 1".to_owned());
            }
            taken += usize::from(evidence.problem().is_some());
        }
        taken as f64 / datasets as f64
    }

    #[test]
    fn small_outlines_of_one_shape_in_the_middle_are_not_taken_for_poses() {
        let mut random = Uniform(3, 0);
        for corners in [4, 6, 12, 64] {
            let taken = share(100, |_| {
                let one = |_| {
                    let of = outline(&mut random, corners);
                    of.iter().map(|x| 0.35 + 0.2 * x).collect::<Vec<f64>>()
                };
                (0..50).map(one).collect()
            });
            assert_eq!(taken, 0.0, "{corners}");
        }
    }

    #[test]
    fn outlines_are_not_taken_for_poses() {
        let mut random = Uniform(1, 0);
        let single = share(10_000, |number| vec![outline(&mut random, 3 + number % 48)]);
        let five = share(2000, |number| {
            (0..5)
                .map(|_| outline(&mut random, 3 + number % 48))
                .collect()
        });
        let many = share(200, |number| {
            (0..40)
                .map(|_| outline(&mut random, 3 + number % 4))
                .collect()
        });
        assert!(single < 0.002, "{single}");
        assert_eq!((five, many), (0.0, 0.0));
    }

    #[test]
    fn poses_are_recognised_in_files_of_one_line_and_of_many() {
        let mut random = Uniform(2, 0);
        for (points, visibility, least) in [
            (5, None, 0.93),
            (12, None, 0.999),
            (24, Some(0.0), 1.0),
            (24, Some(1.0), 1.0),
            (98, Some(1.0), 1.0),
        ] {
            let found = share(500, |_| vec![pose(&mut random, points, visibility)]);
            assert!(found >= least, "{points} {visibility:?}: {found}");
        }
        for (points, least) in [(1, 0.9), (2, 0.9), (3, 1.0), (4, 1.0)] {
            let found = share(100, |_| {
                (0..30).map(|_| pose(&mut random, points, None)).collect()
            });
            assert!(found >= least, "{points}: {found}");
        }
    }
}
