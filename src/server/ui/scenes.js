// Drawn scenes for penstock-scenes, the small model that sees (training/scenes.py draws what it was trained on).
import { element } from "./dom.js";

const kSide = 216, kCell = kSide / 3;
const kColors = { red: "#d62828", green: "#2c963e", blue: "#2654c8", yellow: "#f0cd28", purple: "#8032a0", orange: "#f2821e" };

// Corners of a shape of radius 1 around (0, 0).
function corners(shape) {
  const around = (n, inner) => Array.from({ length: 2 * n }, (_, i) => {
    const turn = Math.PI * i / n, away = i % 2 === 0 ? 1 : inner;
    return [away * Math.sin(turn), -away * Math.cos(turn)];
  });
  if (shape === "square") return [[-.8, -.8], [.8, -.8], [.8, .8], [-.8, .8]];
  if (shape === "cross") {
    const a = 1, b = .32;
    return [[-b, -a], [b, -a], [b, -b], [a, -b], [a, b], [b, b], [b, a], [-b, a], [-b, b], [-a, b], [-a, -b], [-b, -b]];
  }
  return shape === "triangle" ? around(3, .5) : around(5, .4);
}

function draw_thing(context, [color, shape, row, column]) {
  const x = kCell * (column + .5), y = kCell * (row + .5), radius = kCell / 3;
  context.fillStyle = kColors[color];
  context.beginPath();
  if (shape === "circle") context.arc(x, y, .9 * radius, 0, 2 * Math.PI);
  else for (const [dx, dy] of corners(shape)) context.lineTo(x + radius * dx, y + radius * dy);
  context.fill();
}

// Scenes: things are [colour, shape, row, column] of three by three places.
export const kScenes = [
  { things: [["red", "circle", 0, 0], ["blue", "star", 1, 1], ["green", "triangle", 2, 2]], question: "Describe the picture." },
  { things: [["yellow", "star", 0, 2], ["purple", "star", 1, 0], ["orange", "square", 2, 1]], question: "How many stars are there?" },
  { things: [["blue", "cross", 0, 1], ["red", "square", 2, 0], ["green", "circle", 1, 2]], question: "Where is the red square?" },
  { things: [["orange", "triangle", 1, 0], ["purple", "circle", 1, 2]], question: "What color is the circle?" },
  { things: [["red", "cross", 0, 0], ["red", "circle", 2, 2], ["yellow", "square", 0, 2]], question: "How many red shapes are there?" },
  { things: [["green", "star", 2, 1], ["blue", "square", 0, 0]], question: "Is there a green star?" },
];

export function scene_url({ things }) {
  const canvas = element("canvas", { width: kSide, height: kSide }), context = canvas.getContext("2d");
  context.fillStyle = "#e8e8e8";
  context.fillRect(0, 0, kSide, kSide);
  for (const thing of things) draw_thing(context, thing);
  return canvas.toDataURL("image/png");
}
