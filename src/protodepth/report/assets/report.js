"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const byId = id => document.getElementById(id);

  // links to the sections, or to the parts where there are several
  const nav = document.querySelector("nav");
  for (const place of all("main section:not([id^=part]), main h2.part")) {
    const link = document.createElement("a");
    link.href = "#" + place.id;
    link.textContent = (place.querySelector("h2") || place).textContent;
    nav.append(link);
  }

  // one metric for all tables and charts
  for (const button of all("[data-set-metric]")) {
    button.addEventListener("click", () => {
      const metric = button.dataset.setMetric;
      document.body.dataset.metric = metric;
      for (const b of all("[data-set-metric]")) b.setAttribute("aria-pressed", String(b.dataset.setMetric === metric));
    });
  }

  // enlarge a picture
  const zoom = byId("zoom");
  for (const button of all(".pic")) {
    button.addEventListener("click", () => {
      const image = button.querySelector("img"), large = zoom.querySelector("img");
      large.src = image.src;
      large.alt = zoom.querySelector("p").textContent = image.alt;
      zoom.showModal();
    });
  }
  zoom.addEventListener("click", event => { if (event.target === zoom) zoom.close(); });

  // point clouds: depth maps are lifted with the camera and drawn as squares with a depth buffer
  const data = JSON.parse(byId("cloud-data").textContent);
  if (!data.samples.length) return;

  function bytes(text) {
    const raw = atob(text), out = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
    return out;
  }
  const luts = { depth: bytes(data.luts.depth), error: bytes(data.luts.error) };
  const decoded = new Map();
  function depthOf(sample, label) {
    if (!(label in sample.maps)) return null;
    const key = sample.label + "\n" + label;
    if (!decoded.has(key)) decoded.set(key, Float32Array.from(new Uint16Array(bytes(sample.maps[label]).buffer), v => v / 65535 * sample.top));
    return decoded.get(key);
  }
  function share(value, low, high, scale) {
    const v = Math.min(high, Math.max(low, value));
    const f = scale === "log" ? Math.log : scale === "inverse" ? (x => -1 / x) : (x => x);
    return (f(v) - f(low)) / (f(high) - f(low));
  }

  function buildCloud(sample, label, colouring, onlyKnown) {
    const depth = depthOf(sample, label), truth = depthOf(sample, "Ground truth");
    if (!depth) return null;
    const [w] = sample.size, [fx, fy, cx, cy] = sample.camera, [low, high, scale, worst] = sample.span;
    const rgb = bytes(sample.rgb), keep = [];
    for (let i = 0; i < depth.length; i++) if (depth[i] > 0 && (!onlyKnown || truth[i] > 0)) keep.push(i);
    const cloud = { n: keep.length, xyz: new Float32Array(3 * keep.length), size: new Float32Array(keep.length), colour: new Uint32Array(keep.length) };
    keep.forEach((i, n) => {
      const d = depth[i];
      cloud.xyz[3 * n] = (i % w - cx) / fx * d;
      cloud.xyz[3 * n + 1] = (Math.floor(i / w) - cy) / fy * d;
      cloud.xyz[3 * n + 2] = d;
      cloud.size[n] = d / fx;                       // width of the pixel at its depth
      let r = rgb[3 * i], g = rgb[3 * i + 1], b = rgb[3 * i + 2];
      if (colouring !== "image") {
        const part = colouring === "depth" ? share(d, low, high, scale) : truth[i] > 0 ? Math.min(1, Math.abs(d - truth[i]) / worst) : -1;
        const k = 3 * (part < 0 ? 0 : 1 + Math.round(254 * part));
        [r, g, b] = [luts[colouring][k], luts[colouring][k + 1], luts[colouring][k + 2]];
      }
      cloud.colour[n] = (255 << 24 | b << 16 | g << 8 | r) >>> 0;
    });
    return cloud;
  }

  const start = { yaw: 0.28, pitch: 0.14, zoom: 0.92 };
  const camera = { ...start, target: [0, 0, 1] };
  const sides = ["left", "right"].map(name => ({ canvas: byId("canvas-" + name), select: byId("cloud-" + name), cloud: null }));

  function currentSample() { return data.samples[Number(byId("cloud-sample").value)]; }

  function rebuild() {
    const sample = currentSample();
    const truth = depthOf(sample, "Ground truth"), known = truth.filter(v => v > 0).sort();
    const middle = known.length ? known[known.length >> 1] : sample.top / 2;
    const colouring = byId("cloud-colour").value, [low, high, scale, worst] = sample.span;
    byId("cloud-scale").textContent = colouring === "depth" ? `Depth from ${low.toFixed(1)} m (dark) to ${high.toFixed(1)} m (bright)${scale === "log" ? ", logarithmic" : ""}.`
      : colouring === "error" ? `Error from 0 (black) to ${worst} m or more (bright yellow).` : "";
    camera.target = [0, 0, Math.sqrt(middle * sample.span[0])];    // between the nearest and the middle depth
    for (const side of sides) side.cloud = buildCloud(sample, side.select.value, colouring, byId("cloud-known").checked);
    draw();
  }

  function drawSide(side, sample) {
    const canvas = side.canvas, ratio = Math.min(2, window.devicePixelRatio || 1);
    const W = Math.max(2, Math.round(canvas.clientWidth * ratio)), H = Math.max(2, Math.round(canvas.clientHeight * ratio));
    if (canvas.width !== W || canvas.height !== H) { canvas.width = W; canvas.height = H; side.frame = null; }
    const context = canvas.getContext("2d");
    side.frame ??= { image: context.createImageData(W, H), near: new Float32Array(W * H) };
    const { image, near } = side.frame, pixels = new Uint32Array(image.data.buffer);
    pixels.fill(0xff3a302a);
    near.fill(Infinity);
    if (side.cloud) splat(side.cloud, sample, pixels, near, W, H);
    context.putImageData(image, 0, 0);
    if (!side.cloud) {
      context.fillStyle = "#ffffff";
      context.font = 16 * ratio + "px system-ui, sans-serif";
      context.fillText("no such prediction for this frame", 20 * ratio, 40 * ratio);
    }
  }

  function splat(cloud, sample, pixels, near, W, H) {
    const cyaw = Math.cos(camera.yaw), syaw = Math.sin(camera.yaw), cp = Math.cos(camera.pitch), sp = Math.sin(camera.pitch);
    const [tx, ty, tz] = camera.target, away = tz / camera.zoom;
    const focal = sample.camera[0] * Math.min(W / sample.size[0], H / sample.size[1]);
    for (let n = 0; n < cloud.n; n++) {
      const x = cloud.xyz[3 * n] - tx, y = cloud.xyz[3 * n + 1] - ty, z = cloud.xyz[3 * n + 2] - tz;
      const x1 = cyaw * x - syaw * z, z1 = syaw * x + cyaw * z;
      const y2 = cp * y - sp * z1, z2 = sp * y + cp * z1 + away;
      if (z2 < 0.04 * away) continue;
      const u = W / 2 + focal * x1 / z2, v = H / 2 + focal * y2 / z2;
      const half = Math.min(14, Math.max(0.8, 0.85 * focal * cloud.size[n] / z2));
      const x0 = Math.max(0, Math.round(u - half)), x9 = Math.min(W, Math.round(u + half));
      const y0 = Math.max(0, Math.round(v - half)), y9 = Math.min(H, Math.round(v + half));
      for (let py = y0; py < y9; py++) {
        for (let at = py * W + x0, end = py * W + x9; at < end; at++) {
          if (z2 < near[at]) { near[at] = z2; pixels[at] = cloud.colour[n]; }
        }
      }
    }
  }

  let waiting = false;
  function draw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      const sample = currentSample();
      for (const side of sides) drawSide(side, sample);
    });
  }

  function turn(dx, dy) {
    camera.yaw += dx;
    camera.pitch = Math.min(1.5, Math.max(-1.5, camera.pitch + dy));
    draw();
  }
  function scaleBy(factor) { camera.zoom = Math.min(12, Math.max(0.1, camera.zoom * factor)); draw(); }
  function reset() { Object.assign(camera, start); draw(); }

  const keys = {
    ArrowLeft: () => turn(-0.08, 0), ArrowRight: () => turn(0.08, 0), ArrowUp: () => turn(0, -0.08), ArrowDown: () => turn(0, 0.08),
    "+": () => scaleBy(1.15), "=": () => scaleBy(1.15), "-": () => scaleBy(1 / 1.15), 0: reset,
  };
  for (const { canvas } of sides) {
    const held = new Map();
    const gap = () => { const [a, b] = [...held.values()]; return Math.hypot(a.x - b.x, a.y - b.y); };
    canvas.addEventListener("pointerdown", event => {
      canvas.setPointerCapture(event.pointerId);
      held.set(event.pointerId, { x: event.clientX, y: event.clientY });
    });
    canvas.addEventListener("pointermove", event => {
      const before = held.get(event.pointerId);
      if (!before) return;
      const old = held.size === 2 ? gap() : 0;
      held.set(event.pointerId, { x: event.clientX, y: event.clientY });
      if (held.size === 2) { if (old > 0) scaleBy(gap() / old); }
      else turn((event.clientX - before.x) * 0.006, (event.clientY - before.y) * 0.006);
    });
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, event => held.delete(event.pointerId));
    canvas.addEventListener("wheel", event => { event.preventDefault(); scaleBy(Math.exp(-event.deltaY * 0.0012)); }, { passive: false });
    canvas.addEventListener("keydown", event => {
      if (event.key in keys && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); keys[event.key](); }
    });
    new ResizeObserver(draw).observe(canvas);
  }
  byId("cloud-reset").addEventListener("click", reset);
  for (const id of ["cloud-sample", "cloud-colour", "cloud-known", "cloud-left", "cloud-right"]) byId(id).addEventListener("change", rebuild);
  rebuild();
})();
