"""Layers of the format of 2013."""

from google.protobuf import text_format

from layermem.proto import read_net_text


def the_same_net(old, new):
    """Whether both texts are read as one message; the notes of the old one."""
    upgraded, written = read_net_text(old), read_net_text(new)
    assert text_format.MessageToString(upgraded.message) == text_format.MessageToString(written.message)
    assert not written.notes
    return upgraded


V0 = """name: "older"
layers { layer { name: "data" type: "data" source: "db" meanfile: "mean" batchsize: 256 cropsize: 227 mirror: true }
  top: "data" top: "label" }
layers { layer { name: "pad1" type: "padding" pad: 2 } bottom: "data" top: "pad1" }
layers {
  layer { name: "conv1" type: "conv" num_output: 96 kernelsize: 11 stride: 4 group: 2 biasterm: false
    weight_filler { type: "gaussian" std: 0.01 } blobs_lr: 1. blobs_lr: 2. weight_decay: 1. weight_decay: 0. }
  bottom: "pad1" top: "conv1"
}
layers { layer { name: "relu1" type: "relu" } bottom: "conv1" top: "conv1" }
layers { layer { name: "pool1" type: "pool" pool: AVE kernelsize: 3 stride: 2 } bottom: "conv1" top: "pool1" }
layers { layer { name: "norm1" type: "lrn" local_size: 3 alpha: 0.1 beta: 0.5 k: 2 } bottom: "pool1" top: "norm1" }
layers { layer { name: "ip" type: "innerproduct" num_output: 10 bias_filler { value: 1 } } bottom: "norm1" top: "ip" }
layers { layer { name: "drop" type: "dropout" dropout_ratio: 0.2 alpha: 3 } bottom: "ip" top: "ip" }
layers { layer { name: "win" type: "window_data" det_fg_threshold: 0.6 det_context_pad: 16 det_crop_mode: "square" }
  top: "w" }
layers { layer { name: "img" type: "images" shuffle_images: true new_height: 8 rand_skip: 3 scale: 2 } top: "i" }
layers { layer { name: "cat" type: "concat" concat_dim: 0 } bottom: "w" bottom: "i" top: "cat" }
layers { layer { name: "out" type: "hdf5_output" hdf5_output_param { file_name: "f" } } bottom: "cat" bottom: "ip" }
layers { layer { name: "gain" type: "infogain_loss" source: "H" } bottom: "ip" bottom: "label" }
"""
V2_OF_V0 = """name: "older"
layer { name: "data" type: "Data" top: "data" top: "label" data_param { source: "db" batch_size: 256 }
  transform_param { mean_file: "mean" crop_size: 227 mirror: true } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
  convolution_param { num_output: 96 kernel_size: 11 stride: 4 group: 2 bias_term: false pad: 2
    weight_filler { type: "gaussian" std: 0.01 } } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1"
  pooling_param { pool: AVE kernel_size: 3 stride: 2 } }
layer { name: "norm1" type: "LRN" bottom: "pool1" top: "norm1"
  lrn_param { local_size: 3 alpha: 0.1 beta: 0.5 k: 2 } }
layer { name: "ip" type: "InnerProduct" bottom: "norm1" top: "ip"
  inner_product_param { num_output: 10 bias_filler { value: 1 } } }
layer { name: "drop" type: "Dropout" bottom: "ip" top: "ip" dropout_param { dropout_ratio: 0.2 } }
layer { name: "win" type: "WindowData" top: "w"
  window_data_param { fg_threshold: 0.6 context_pad: 16 crop_mode: "square" } }
layer { name: "img" type: "ImageData" top: "i" image_data_param { shuffle: true new_height: 8 rand_skip: 3 }
  transform_param { scale: 2 } }
layer { name: "cat" type: "Concat" bottom: "w" bottom: "i" top: "cat" concat_param { concat_dim: 0 } }
layer { name: "out" type: "HDF5Output" bottom: "cat" bottom: "ip" hdf5_output_param { file_name: "f" } }
layer { name: "gain" type: "InfogainLoss" bottom: "ip" bottom: "label" infogain_loss_param { source: "H" } }
"""


def test_layers_of_2013_become_layers_of_today_and_keep_their_lines():
    net = the_same_net(V0, V2_OF_V0)
    assert net.lines == (2, 5, 10, 11, 12, 13, 14, 15, 17, 18, 19, 20)
    assert "layer 'drop': dropped 'alpha', which type 'dropout' does not have" in net.notes
    assert "moved 1 padding layer to the pad of their readers" in net.notes
