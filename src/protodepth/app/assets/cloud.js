"use strict";
// Depth maps are lifted with the camera and drawn as squares with a depth buffer; one view turns all of them.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
  const rgb = bytes(data.rgb), [width, height] = data.size, [fx, fy, cx, cy] = data.camera;

  function lift(text) {
    const depth = Float32Array.from(new Uint16Array(bytes(text).buffer), v => v / 65535 * data.top);
    const keep = [];
    depth.forEach((d, i) => { if (d > 0) keep.push(i); });
    const cloud = { n: keep.length, xyz: new Float32Array(3 * keep.length), side: new Float32Array(keep.length), colour: new Uint32Array(keep.length) };
    keep.forEach((i, n) => {
      const d = depth[i];
      cloud.xyz.set([(i % width - cx) / fx * d, (Math.floor(i / width) - cy) / fy * d, d], 3 * n);
      cloud.side[n] = d / fx;                                   // width of the pixel at its depth
      cloud.colour[n] = (255 << 24 | rgb[3 * i + 2] << 16 | rgb[3 * i + 1] << 8 | rgb[3 * i]) >>> 0;
    });
    return cloud;
  }

  const start = { yaw: 0.35, pitch: 0.18, zoom: 0.85 }, view = { ...start };
  const panels = Object.entries(data.maps).map(([label, text]) => {
    const figure = document.createElement("figure"), canvas = document.createElement("canvas");
    const caption = document.createElement("figcaption");
    canvas.tabIndex = 0;
    canvas.setAttribute("aria-label", "point cloud, " + label);
    caption.textContent = label;
    figure.append(canvas, caption);
    document.body.append(figure);
    return { canvas, cloud: lift(text) };
  });
  const hint = document.createElement("p");
  hint.textContent = "Drag to turn, wheel or two fingers to zoom, arrow keys and + - work too, 0 resets.";
  document.body.append(hint);

  function drawPanel({ canvas, cloud }) {
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    // Below the first screen a frame has no layout yet: any size will do until the observer tells the right one.
    const W = canvas.width = Math.round((canvas.clientWidth || 360) * ratio);
    const H = canvas.height = Math.round((canvas.clientHeight || 320) * ratio);
    const context = canvas.getContext("2d"), image = context.createImageData(W, H);
    const pixels = new Uint32Array(image.data.buffer), near = new Float32Array(W * H).fill(Infinity);
    pixels.fill(0xff3a302a);
    const [cosYaw, sinYaw, cosPitch, sinPitch] = [Math.cos(view.yaw), Math.sin(view.yaw), Math.cos(view.pitch), Math.sin(view.pitch)];
    const away = data.middle / view.zoom, focal = fx * Math.min(W / width, H / height);
    for (let n = 0; n < cloud.n; n++) {
      const x = cloud.xyz[3 * n], y = cloud.xyz[3 * n + 1], z = cloud.xyz[3 * n + 2] - data.middle;
      const x1 = cosYaw * x - sinYaw * z, z1 = sinYaw * x + cosYaw * z;
      const y2 = cosPitch * y - sinPitch * z1, z2 = sinPitch * y + cosPitch * z1 + away;
      if (z2 < 0.04 * away) continue;
      const u = W / 2 + focal * x1 / z2, v = H / 2 + focal * y2 / z2;
      const half = Math.min(14, Math.max(0.8, 0.85 * focal * cloud.side[n] / z2));
      const left = Math.max(0, Math.round(u - half)), right = Math.min(W, Math.round(u + half));
      const bottom = Math.min(H, Math.round(v + half));
      for (let row = Math.max(0, Math.round(v - half)); row < bottom; row++) {
        for (let at = row * W + left; at < row * W + right; at++) {
          if (z2 < near[at]) { near[at] = z2; pixels[at] = cloud.colour[n]; }
        }
      }
    }
    context.putImageData(image, 0, 0);
  }

  let waiting = false;
  function draw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; panels.forEach(drawPanel); });
  }
  function turn(dx, dy) { view.yaw += dx; view.pitch = Math.min(1.5, Math.max(-1.5, view.pitch + dy)); draw(); }
  function scale(factor) { view.zoom = Math.min(12, Math.max(0.1, view.zoom * factor)); draw(); }
  const keys = {
    ArrowLeft: () => turn(-0.08, 0), ArrowRight: () => turn(0.08, 0), ArrowUp: () => turn(0, -0.08), ArrowDown: () => turn(0, 0.08),
    "+": () => scale(1.15), "=": () => scale(1.15), "-": () => scale(1 / 1.15), 0: () => { Object.assign(view, start); draw(); },
  };
  for (const { canvas } of panels) {
    const held = new Map();                                     // pointer -> where it is; two fingers zoom
    const gap = () => { const [a, b] = [...held.values()]; return Math.max(1, Math.hypot(a[0] - b[0], a[1] - b[1])); };
    canvas.addEventListener("pointerdown", event => { canvas.setPointerCapture(event.pointerId); held.set(event.pointerId, [event.clientX, event.clientY]); });
    canvas.addEventListener("pointermove", event => {
      const before = held.get(event.pointerId);
      if (!before) return;
      const wide = held.size === 2 ? gap() : 0;
      held.set(event.pointerId, [event.clientX, event.clientY]);
      if (wide) scale(gap() / wide);
      else turn((event.clientX - before[0]) * 0.006, (event.clientY - before[1]) * 0.006);
    });
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, event => held.delete(event.pointerId));
    canvas.addEventListener("wheel", event => { event.preventDefault(); scale(Math.exp(-event.deltaY * 0.0012)); }, { passive: false });
    canvas.addEventListener("keydown", event => {
      if (event.key in keys && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); keys[event.key](); }
    });
    new ResizeObserver(draw).observe(canvas);
  }
  panels.forEach(drawPanel);                                    // at once: no animation frame comes to what is out of sight
})();
