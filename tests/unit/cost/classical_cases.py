"""Operators of classical machine learning; the figures are written out."""

from __future__ import annotations

import numpy as np

from otel_quant.cost.rules.formula import DIV, EXP, SQRT, TANH
from tests.unit.cost.operator_case import Case, floats

SOFTMAX = EXP + DIV

_FOUR_CLASSES = {
    "classlabels_ints": [0, 1, 2, 3],
    "coefficients": [1.0] * 15,
    "support_vectors": [1.0] * 15,
    "vectors_per_class": [2, 1, 1, 1],
    "rho": [0.0] * 6,
    "kernel_type": "RBF",
    "kernel_params": [1.0, 0.0, 3.0],
}
_TREE = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [1, 0, 0],
    "nodes_values": [0.5, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
}

# fmt: off
CLASSICAL = {
    "LinearClassifier": Case(
        "ai.onnx.ml:LinearClassifier",
        [floats(4, 3)],
        [(4,), (4, 3)],
        4 * 9 + 12 * (1 + SOFTMAX),
        {
            "classlabels_ints": [0, 1, 2], "coefficients": [1.0] * 9, "intercepts": [0.0] * 3,
            "post_transform": "SOFTMAX",
        },
    ),
    "LinearClassifier of two classes by text, of a vector": Case(
        "ai.onnx.ml:LinearClassifier",
        [floats(3)],
        [(1,), (1, 2)],
        3 + 2 * (1 + EXP),
        {
            "classlabels_strings": ["a", "b"], "coefficients": [1.0] * 3,
            "intercepts": [0.0], "post_transform": "LOGISTIC",
        },
    ),
    "LinearRegressor": Case(
        "ai.onnx.ml:LinearRegressor",
        [floats(4, 3)],
        [(4, 2)],
        4 * 6 + 8,
        {"targets": 2, "coefficients": [1.0] * 6, "intercepts": [0.0] * 2},
    ),
    "SVMClassifier": Case(
        "ai.onnx.ml:SVMClassifier",
        [floats(4, 3)],
        [(4,), (4, 6)],
        4 * (15 + 15) + 4 * (15 + 5 * (1 + EXP) + 6),
        _FOUR_CLASSES,
    ),
    "SVMClassifier with probabilities": Case(
        "ai.onnx.ml:SVMClassifier",
        [floats(4, 3)],
        [(4,), (4, 4)],
        4 * (15 + 15) + 4 * (15 + 5 * (1 + EXP) + 6),
        {**_FOUR_CLASSES, "prob_a": [1.0] * 6, "prob_b": [1.0] * 6},
    ),
    "SVMRegressor": Case(
        "ai.onnx.ml:SVMRegressor",
        [floats(4, 3)],
        [(4, 1)],
        4 * (15 + 5) + 4 * (5 * (2 + TANH) + 1),
        {
            "coefficients": [1.0] * 5, "support_vectors": [1.0] * 15, "n_supports": 5,
            "rho": [0.0], "kernel_type": "SIGMOID", "kernel_params": [1.0, 0.0, 3.0],
        },
    ),
    "TreeEnsembleClassifier": Case(
        "ai.onnx.ml:TreeEnsembleClassifier",
        [floats(4, 3)],
        [(4,), (4, 2)],
        8 * SOFTMAX,
        {
            **_TREE, "class_treeids": [0, 0], "class_nodeids": [1, 2], "class_ids": [0, 1],
            "class_weights": [1.0, 2.0], "classlabels_int64s": [5, 6], "post_transform": "SOFTMAX",
        },
    ),
    "TreeEnsembleRegressor": Case(
        "ai.onnx.ml:TreeEnsembleRegressor",
        [floats(4, 3)],
        [(4, 2)],
        0,
        {
            **_TREE, "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 1],
            "target_weights": [1.0, 2.0], "n_targets": 2,
        },
    ),
    "Scaler": Case(
        "ai.onnx.ml:Scaler", [floats(4, 3)], [(4, 3)], 24, {"scale": [1.0], "offset": [0.0]}
    ),
    "Normalizer": Case(
        "ai.onnx.ml:Normalizer", [floats(4, 3)], [(4, 3)], 12 * (1 + DIV) + 4 * SQRT, {"norm": "L2"}
    ),
    "Binarizer": Case("ai.onnx.ml:Binarizer", [floats(4, 3)], [(4, 3)], 12, {"threshold": 0.5}),
    "Imputer": Case(
        "ai.onnx.ml:Imputer", [floats(4, 3)], [(4, 3)], 12, {"imputed_value_floats": [0.5]}
    ),
    "ArrayFeatureExtractor": Case(
        "ai.onnx.ml:ArrayFeatureExtractor", [floats(2, 4, 3), np.array([0, 2])], [(2, 4, 2)], 0
    ),
    "ArrayFeatureExtractor of a vector": Case(
        "ai.onnx.ml:ArrayFeatureExtractor", [floats(3), np.array([0, 2])], [(1, 2)], 0
    ),
    "FeatureVectorizer": Case(
        "ai.onnx.ml:FeatureVectorizer",
        [floats(4, 3), floats(4, 2)],
        [(4, 5)],
        0,
        {"inputdimensions": [3, 2]},
    ),
    "OneHotEncoder": Case(
        "ai.onnx.ml:OneHotEncoder", [floats(4, 3)], [(4, 3, 2)], 0, {"cats_int64s": [1, 2]}
    ),
    "LabelEncoder": Case(
        "ai.onnx.ml:LabelEncoder",
        [np.array([[1, 2]])],
        [(1, 2)],
        0,
        {"keys_int64s": [1], "values_floats": [2.0]},
        2,
    ),
    "CategoryMapper": Case(
        "ai.onnx.ml:CategoryMapper",
        [np.array([[1, 2]])],
        [(1, 2)],
        0,
        {"cats_int64s": [1], "cats_strings": ["a"], "default_string": "z"},
    ),
}
# fmt: on
