// nntrainer_steps: trains a chain of layers with nntrainer on one batch of noise, and prints a line of JSON.
//
//   nntrainer_steps CHAIN STEPS BATCH PIXELS CLASSES PROPERTY...
//   CHAIN     a file with a layer per line: its type, and properties as key=value, separated by blanks
//   PIXELS    floats of an image              PROPERTY  of the model, as memory_optimization=false
//   seconds   of each step, which is an epoch of one batch, with the copy of the batch into nntrainer's queue
//   note      the bytes that nntrainer allocates before the first step, for its pools of weights and tensors
//   bytes     peak resident set (VmHWM)       parameters  floats of the weights
#include <dataset.h>
#include <layer.h>
#include <layer_context.h>
#include <malloc.h>
#include <model.h>
#include <optimizer.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

size_t allocated_bytes() {
    const auto info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

size_t peak_bytes() {
    std::ifstream status("/proc/self/status");
    std::string word;
    size_t kib = 0;
    while (status >> word && word != "VmHWM:") {
    }
    status >> kib;
    return kib * 1024;
}

void add_layers(ml::train::Model& model, const char* chain) {
    std::ifstream file(chain);
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string type, word;
        std::vector<std::string> properties;
        words >> type;
        while (words >> word) {
            properties.push_back(word);
        }
        model.addLayer(ml::train::createLayer(type, properties));
    }
}

void check(int status, const char* what) {
    if (status != ML_ERROR_NONE) {
        throw std::runtime_error(std::string(what) + " failed: " + std::to_string(status));
    }
}

}  // namespace

int main(int, char** argv) {
    const size_t steps = std::stoul(argv[2]), batch = std::stoul(argv[3]);
    const size_t pixels = std::stoul(argv[4]), classes = std::stoul(argv[5]);
    std::vector<std::string> properties = {"batch_size=" + std::to_string(batch), "epochs=" + std::to_string(steps)};
    for (char** word = argv + 6; *word; ++word) {
        properties.push_back(*word);
    }
    const size_t before = allocated_bytes();
    auto model = ml::train::createModel(ml::train::ModelType::NEURAL_NET);
    add_layers(*model, argv[1]);
    model->setProperty(properties);
    check(model->setOptimizer(ml::train::createOptimizer("sgd", {"learning_rate=0"})), "setOptimizer");
    check(model->compile(), "compile");
    check(model->initialize(), "initialize");
    size_t parameters = 0;
    model->forEachLayer([&](ml::train::Layer&, nntrainer::RunLayerContext& layer, void*) {
        for (unsigned i = 0; i < layer.getNumWeights(); ++i) {
            parameters += layer.getWeight(i).size();
        }
    });

    std::vector<float> noise(batch * pixels);
    std::minstd_rand random(1);
    std::generate(noise.begin(), noise.end(), [&] { return float(random()) / float(random.max()) - 0.5f; });
    size_t image = 0;  // of the batch, then the end of the epoch
    auto next = [&](float** x, float** label, bool* last, void*) {
        *last = image == batch;
        if (*last) {
            image = 0;
            return 0;
        }
        std::copy_n(&noise[image * pixels], pixels, x[0]);
        std::fill_n(label[0], classes, 0.0f);
        label[0][image++ % classes] = 1.0f;
        return 0;
    };
    std::shared_ptr<ml::train::Dataset> data = ml::train::createDataset(ml::train::DatasetType::GENERATOR, next);
    check(model->setDataset(ml::train::DatasetModeType::MODE_TRAIN, data), "setDataset");

    size_t planned = 0;
    std::vector<double> seconds;
    auto began = Clock::now();
    auto never = [&](void*) {  // called for the first time when everything is allocated but the queue
        planned = planned ? planned : allocated_bytes() - before - noise.size() * sizeof(float);
        return false;
    };
    auto end_of_epoch = [&](void*) {
        const auto now = Clock::now();
        seconds.push_back(std::chrono::duration<double>(now - began).count());
        began = now;
    };
    check(model->train({}, never, nullptr, end_of_epoch), "train");

    std::printf("\n{\"is\": \"nntrainer %s\", \"parameters\": %zu, \"bytes\": %zu, \"note\": \"pools %.2f MiB\", ",
                ml::train::getVersion().c_str(), parameters, peak_bytes(), double(planned) / (1 << 20));
    for (size_t i = 0; i < steps; ++i) {
        std::printf("%s%f", i ? ", " : "\"seconds\": [", seconds.at(i));
    }
    std::puts("]}");
}
