// What the page knows: one object that all its parts share, and how inputs and outputs are called.

export const S = {
  palette: null, server: '',
  net: null, view: null, first: null,       // the open network; its view, and the one it began with
  got: {},                                  // the last answer of each kind
  point: null, marked: -1, sheet: null, span: null, hover: null,
  live: false,
};

export const KINDS = ['picture', 'event', 'outputs', 'linear_models', 'point', 'code'];
export const LAW = ['event', 'outputs', 'linear_models', 'point', 'code'];

// Between the network's own number and the value that people speak of.
export const shown = (label, v) => (v - label.shift) / label.scale;
export const own = (label, v) => v * label.scale + label.shift;
export const spread = (label, v) => v / Math.abs(label.scale);
export const titled = label => label.unit ? `${label.name} (${label.unit})` : label.name;
export const input = i => S.net.inputs[i];
export const output = o => S.net.outputs[o] ?? { name: `y[${o}]`, unit: '', scale: 1, shift: 0 };

// What the polygons depend on, to tell whether two answers are about the same ones.
export const planeOf = v => JSON.stringify([v.axes, v.lower, v.upper, v.layers, v.at.filter((_, i) => !v.axes.includes(i))]);
