"""The bundled models against interpolation of their own sparse points, on test scenes:
python benchmarks/bundled_models.py
"""

from protodepth import ProtoDepth, open_domain
from protodepth.data.interpolation import completions
from protodepth.metrics import depth_errors, mean_errors
from protodepth.training.evaluate import evaluate


def main() -> None:
    for name, world in (("worlds-tiny", "room"), ("worlds-tiny-outdoor", "street"), ("worlds-tiny-mixed", "street")):
        model, domain = ProtoDepth.from_pretrained(name), open_domain(f"worlds:{world}")
        rules = {"min_depth": domain.rules.min_depth, "max_depth": domain.rules.max_depth}
        errors = {name: evaluate(lambda b, m=model: m.predict_batch(b, "base"), domain.test, domain.rules).mean}
        for label in completions.names():
            complete = completions.get(label)
            rows = []
            for index in range(len(domain.test)):
                frame = domain.test[index]
                rows.append(depth_errors(complete(frame.sparse_depth), frame.ground_truth, **rules))
            errors[label] = mean_errors(rows)
        for label, e in errors.items():
            print(f"{world:<8}{label:<22}MAE {e['mae']:8.1f} mm  RMSE {e['rmse']:8.1f} mm  iMAE {e['imae']:7.2f} 1/km")


if __name__ == "__main__":
    main()
