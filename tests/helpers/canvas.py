"""What a canvas shows: a checksum of its pixels and how many colours they have."""

PIXELS = """canvas => {
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  let sum = 0; const colours = new Set();
  for (let i = 0; i < data.length; i += 4) {
    const c = data[i] << 16 | data[i + 1] << 8 | data[i + 2];
    colours.add(c); sum = (sum * 31 + c) % 1000000007;
  }
  return [sum, colours.size];
}"""
