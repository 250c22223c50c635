//! Objects in a street: cars, poles, people, trees, fences.
//!
//! Positions are where a thing meets the ground; sizes grow towards the lower edge.

use super::canvas::{Material, Pattern};
use super::outline::{Outline, at};
use super::street::{BICYCLIST, CAR, FENCE, POLE, SIGN, Scene, TREE};

impl Scene {
    pub(super) fn car(&mut self, x: f32, foot: f32, size: f32) {
        let colour = self.random.pick([
            [0.55, 0.08, 0.07],
            [0.12, 0.16, 0.35],
            [0.7, 0.7, 0.7],
            [0.1, 0.1, 0.11],
        ]);
        let body = Material::plain(self.random.near(colour, 0.05)).with_texture(0.15, 0.04);
        let body = body.with_shade(0.8, false);
        let dark = Material::plain([0.07, 0.08, 0.10]).with_texture(0.5, 0.05);
        let light = Material::plain([0.75, 0.2, 0.15]);
        let cabin = Outline::Polygon(vec![
            at(x - size * 0.42, foot - size * 0.95),
            at(x + size * 0.42, foot - size * 0.95),
            at(x + size * 0.62, foot - size * 0.5),
            at(x - size * 0.62, foot - size * 0.5),
        ]);
        self.paint(&cabin, 0.8, &body, CAR);
        let hull = self.upright(
            x - size * 0.68,
            foot - size * 0.58,
            x + size * 0.68,
            foot,
            size * 0.1,
        );
        self.paint(&hull, 0.8, &body, CAR);
        let pane = self.upright(
            x - size * 0.38,
            foot - size * 0.89,
            x + size * 0.38,
            foot - size * 0.6,
            size * 0.06,
        );
        self.paint(&pane, 0.3, &dark, CAR);
        for side in [-1.0, 1.0] {
            let centre = at(x + side * size * 0.52, foot - size * 0.38);
            let lamp = Outline::Ellipse {
                centre,
                radii: at(size * 0.09, size * 0.06),
            };
            self.paint(&lamp, 0.2, &light, CAR);
            let at_wheel = x + side * size * 0.5;
            let wheel = self.upright(
                at_wheel - size * 0.12,
                foot - size * 0.12,
                at_wheel + size * 0.12,
                foot + size * 0.08,
                size * 0.04,
            );
            self.paint(&wheel, 0.3, &dark, CAR);
        }
    }

    pub(super) fn pole(&mut self, x: f32, foot: f32, tall: f32) {
        let half = (tall * 0.008).max(self.unit);
        let steel = Material::plain(self.random.near([0.2, 0.2, 0.2], 0.08)).with_texture(0.2, 0.1);
        let mast = self.upright(x - half, foot - tall, x + half, foot, 0.0);
        self.paint(&mast, 1.2, &steel, POLE);
        let side = tall * self.random.between(0.03, 0.07);
        let colour = self.random.pick([
            [0.1, 0.2, 0.6],
            [0.7, 0.15, 0.1],
            [0.8, 0.75, 0.2],
            [0.06, 0.08, 0.06],
        ]);
        let board = Material::plain(colour);
        let board = board.with_pattern(Pattern::Stripes {
            dx: 0.0,
            dy: 1.2 / side,
        });
        let sign = self.upright(
            x - side,
            foot - tall,
            x + side,
            foot - tall + side * 2.4,
            side * 0.3,
        );
        self.paint(&sign, 1.0, &board, SIGN);
    }

    pub(super) fn person(&mut self, x: f32, foot: f32, tall: f32, kind: u32) {
        let cloth = self.random.between(0.05, 0.5);
        let coat = self.random.near([cloth, cloth * 0.9, cloth * 0.8], 0.1);
        let coat = Material::plain(coat).with_texture(0.3, 0.2);
        let skin = Material::plain([0.62, 0.45, 0.36]);
        let body = self.upright(
            x - tall * 0.13,
            foot - tall * 0.85,
            x + tall * 0.13,
            foot - tall * 0.4,
            tall * 0.06,
        );
        let lean = self.random.between(-0.12, 0.12);
        for leg in [-1.0, 1.0] {
            let hip = at(x + leg * tall * 0.05, foot - tall * 0.45);
            let shoe = x + (leg * 0.08 + lean) * tall;
            let limb = Outline::Polygon(vec![
                at(hip.x - tall * 0.05, hip.y),
                at(hip.x + tall * 0.05, hip.y),
                at(shoe + tall * 0.04, foot),
                at(shoe - tall * 0.04, foot),
            ]);
            self.paint(&limb, 1.0, &coat.with_shade(0.6, false), kind);
        }
        self.paint(&body, 1.5, &coat, kind);
        let head = at(x, foot - tall * 0.92);
        let radii = at(tall * 0.065, tall * 0.085);
        self.paint(
            &Outline::Ellipse {
                centre: head,
                radii,
            },
            0.6,
            &skin,
            kind,
        );
        if kind == BICYCLIST {
            let tyre = Material::plain([0.06, 0.06, 0.06]);
            for side in [-1.0, 1.0] {
                let centre = at(x + side * tall * 0.3, foot - tall * 0.16);
                let radii = at(tall * 0.2, tall * 0.2);
                let wheel = Outline::Ring {
                    centre,
                    radii,
                    thickness: tall * 0.02,
                };
                self.paint(&wheel, 0.3, &tyre, kind);
            }
        }
    }

    pub(super) fn tree(&mut self, x: f32, foot: f32, tall: f32) {
        let bark = Material::plain([0.17, 0.13, 0.10]).with_texture(0.4, 0.4);
        let half = tall * 0.035;
        let trunk = self.upright(x - half, foot - tall * 0.5, x + half, foot, 0.0);
        self.paint(&trunk, 2.0, &bark, TREE);
        for _ in 0..3 {
            let leaf = self.random.near([0.15, 0.21, 0.09], 0.05);
            let leaves = Material::plain(leaf)
                .with_texture(0.7, 0.75)
                .with_shade(0.5, false);
            let centre = at(
                x + tall * self.random.between(-0.2, 0.2),
                foot - tall * self.random.between(0.55, 0.95),
            );
            let radius = tall * self.random.between(0.2, 0.38);
            let crown = Outline::Ellipse {
                centre,
                radii: at(radius, radius * 0.9),
            };
            self.paint(&crown, 16.0, &leaves, TREE);
        }
    }

    pub(super) fn fence(&mut self, x: f32, foot: f32, tall: f32) {
        let rails = Material::plain(self.random.near([0.35, 0.33, 0.3], 0.1))
            .with_texture(0.2, 0.2)
            .with_pattern(Pattern::Slats {
                period: (tall * 0.05).max(3.0 * self.unit),
            });
        let fence = self.upright(
            x - tall * 0.6,
            foot - tall * 0.28,
            x + tall * 0.6,
            foot,
            0.0,
        );
        self.paint(&fence, 1.5, &rails, FENCE);
    }
}
