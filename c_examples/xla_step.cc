// What an executable of XLA does in a step of training, with patching as XLA does it and with a binding, in one run.
//
// The program has the shape of a recorded one (a small Llama, weights donated): 494 buffers, of which 100 small ones are others in
// each step, and a graph of 344 kernels that use them, so 344 nodes to patch. Each way runs the same steps; afterwards the buffers
// hold what the host computes, or the way counts as wrong. Printed for each: host time of a step (what it takes to enqueue it),
// GPU time (from the step's first work to its last, with the host out of the way), both as medians, and time a step in a row of
// steps without a wait between them. From the top folder:
//
//   cargo build --release
//   ln -sf libgvmm.so target/release/libgvmm.so.0
//   c++ -std=c++17 -O2 -Wall -Wextra -Iinclude c_examples/xla_step.cc -Ltarget/release -lgvmm -ldl
//      -Wl,-rpath,$PWD/target/release -o target/xla_step
//   target/xla_step [--steps N] [--kernels N] [--host]
//
// No CUDA header is needed: the few functions of libcuda.so.1 (or GVMM_CUDA_LIBRARY) are looked up here. Without that library it
// says so and ends with 77; with --host the command buffer is a graph of the host driver's, and the times mean little.
#include <gvmm.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kMoving = 100, kSets = 3, kThreads = 256;
struct Kind {
    std::uint64_t bytes;
    std::size_t count;
};
constexpr Kind kWeights[] = {{65536000, 6}, {5767168, 144}, {2097152, 96}, {1048576, 48}};  // stay, and are read
constexpr Kind kOthers[] = {{64, 48}, {4, 52}};                                             // stay, and are small

std::uint64_t moving_bytes(std::size_t i) { return i == 0 ? 16416 : 2048; }

[[noreturn]] void give_up(const std::string &what) {
    std::fprintf(stderr, "%s\n", what.c_str());
    std::exit(1);
}
void check(const gvmm::Status &status) {
    if (!status.ok()) give_up(status.message());
}
template <class T>
T check(gvmm::StatusOr<T> result) {
    check(result.status());
    return *std::move(result);
}

// Data of a kernel: every word of `data` becomes 3 * itself + the weight's + salt.
struct Work {
    std::uint64_t data, weight;
    std::uint32_t words, salt;
};

// What runs the command buffer: a vendor's graph, or the host's.
class Machine {
   public:
    virtual ~Machine() = default;
    virtual void *stream() = 0;
    virtual void write(std::uint64_t to, const void *from, std::size_t bytes) = 0;
    virtual void read(void *to, std::uint64_t from, std::size_t bytes) = 0;
    virtual void begin_recording() = 0;
    virtual void add(const Work &work) = 0;        // one kernel after the one before
    virtual void *end_recording() = 0;             // the graph that is launched
    virtual void patch(std::size_t kernel, const Work &work) = 0;
    virtual void launch() = 0;
    virtual void wait() = 0;
    virtual void hold() = 0;                       // keeps the stream busy while the host enqueues
    virtual void mark(int event) = 0;
    virtual double between_us() = 0;               // event 0 to event 1, after wait
};

#define CU_FUNCTIONS(F)                                                                                                    \
    F(init, "cuInit", (unsigned))                                                                                          \
    F(retain, "cuDevicePrimaryCtxRetain", (void **, int))                                                                  \
    F(push, "cuCtxPushCurrent_v2", (void *))                                                                               \
    F(stream_create, "cuStreamCreate", (void **, unsigned))                                                                \
    F(stream_synchronize, "cuStreamSynchronize", (void *))                                                                 \
    F(copy_in, "cuMemcpyHtoD_v2", (std::uint64_t, const void *, std::size_t))                                              \
    F(copy_out, "cuMemcpyDtoH_v2", (void *, std::uint64_t, std::size_t))                                                   \
    F(module_load, "cuModuleLoadData", (void **, const void *))                                                            \
    F(module_function, "cuModuleGetFunction", (void **, void *, const char *))                                             \
    F(launch_kernel, "cuLaunchKernel",                                                                                     \
      (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **))            \
    F(capture_begin, "cuStreamBeginCapture_v2", (void *, int))                                                             \
    F(capture_info, "cuStreamGetCaptureInfo_v2",                                                                           \
      (void *, int *, std::uint64_t *, void **, void *const **, std::size_t *))                                            \
    F(capture_end, "cuStreamEndCapture", (void *, void **))                                                                \
    F(instantiate, "cuGraphInstantiateWithFlags", (void **, void *, unsigned long long))                                   \
    F(set_params, "cuGraphExecKernelNodeSetParams", (void *, void *, const void *))                                        \
    F(graph_launch, "cuGraphLaunch", (void *, void *))                                                                     \
    F(exec_destroy, "cuGraphExecDestroy", (void *))                                                                        \
    F(graph_destroy, "cuGraphDestroy", (void *))                                                                           \
    F(event_create, "cuEventCreate", (void **, unsigned))                                                                  \
    F(event_record, "cuEventRecord", (void *, void *))                                                                     \
    F(event_elapsed, "cuEventElapsedTime", (float *, void *, void *))

struct Cuda {
#define DECLARE(name, symbol, parameters) int(*name) parameters = nullptr;
    CU_FUNCTIONS(DECLARE)
#undef DECLARE

    // False where there is no driver; a driver that lacks a function is no such one either.
    bool open() {
        const char *path = std::getenv("GVMM_CUDA_LIBRARY");
        void *library = ::dlopen(path ? path : "libcuda.so.1", RTLD_NOW);
        if (!library) return false;
#define FIND(name, symbol, parameters) *reinterpret_cast<void **>(&name) = ::dlsym(library, symbol);
        CU_FUNCTIONS(FIND)
#undef FIND
#define THERE(name, symbol, parameters) \
    if (!name) return std::fprintf(stderr, "the driver lacks %s\n", symbol), false;
        CU_FUNCTIONS(THERE)
#undef THERE
        return init(0) == 0;
    }
};

const char kPtx[] = R"(
.version 7.0
.target sm_50
.address_size 64

.visible .entry xla_step(.param .u64 data, .param .u64 weight, .param .u32 words, .param .u32 salt)
{
    .reg .pred %p;
    .reg .b32 %n, %salt, %i, %a, %b;
    .reg .b64 %data, %weight, %at, %d, %w;
    ld.param.u64 %data, [data];
    ld.param.u64 %weight, [weight];
    ld.param.u32 %n, [words];
    ld.param.u32 %salt, [salt];
    cvta.to.global.u64 %data, %data;
    cvta.to.global.u64 %weight, %weight;
    mov.u32 %i, %tid.x;
AGAIN:
    setp.ge.u32 %p, %i, %n;
    @%p bra DONE;
    mul.wide.u32 %at, %i, 4;
    add.s64 %d, %data, %at;
    add.s64 %w, %weight, %at;
    ld.global.u32 %a, [%d];
    ld.global.u32 %b, [%w];
    mad.lo.u32 %a, %a, 3, %b;
    add.u32 %a, %a, %salt;
    st.global.u32 [%d], %a;
    add.u32 %i, %i, 256;
    bra AGAIN;
DONE:
    ret;
}

.visible .entry xla_hold(.param .u64 nanoseconds)
{
    .reg .pred %p;
    .reg .b64 %from, %now, %wanted;
    ld.param.u64 %wanted, [nanoseconds];
    mov.u64 %from, %globaltimer;
AGAIN:
    mov.u64 %now, %globaltimer;
    sub.s64 %now, %now, %from;
    setp.lt.u64 %p, %now, %wanted;
    @%p bra AGAIN;
    ret;
}
)";

class CudaMachine : public Machine {
   public:
    static std::unique_ptr<CudaMachine> make() {
        std::unique_ptr<CudaMachine> made(new CudaMachine);
        if (!made->cu_.open()) return nullptr;
        made->start();
        return made;
    }
    void *stream() override { return stream_; }
    void write(std::uint64_t to, const void *from, std::size_t bytes) override {
        call(cu_.copy_in(to, from, bytes), "cuMemcpyHtoD");
        call(cu_.stream_synchronize(nullptr), "cuStreamSynchronize");  // such a copy may return before it is there
    }
    void read(void *to, std::uint64_t from, std::size_t bytes) override {
        call(cu_.copy_out(to, from, bytes), "cuMemcpyDtoH");
    }
    void begin_recording() override {
        if (exec_) call(cu_.exec_destroy(exec_), "cuGraphExecDestroy");
        if (graph_) call(cu_.graph_destroy(graph_), "cuGraphDestroy");
        exec_ = graph_ = nullptr;
        nodes_.clear();
        call(cu_.capture_begin(stream_, 2), "cuStreamBeginCapture");  // relaxed
    }
    void add(const Work &work) override {
        Work copy = work;
        void *parameters[] = {&copy.data, &copy.weight, &copy.words, &copy.salt};
        call(cu_.launch_kernel(step_, 1, 1, 1, kThreads, 1, 1, 0, stream_, parameters, nullptr), "cuLaunchKernel");
        int status = 0;
        std::uint64_t id = 0;
        void *graph = nullptr, *const *last = nullptr;
        std::size_t count = 0;
        call(cu_.capture_info(stream_, &status, &id, &graph, &last, &count), "cuStreamGetCaptureInfo");
        nodes_.push_back(count == 1 ? last[0] : nullptr);
    }
    void *end_recording() override {
        call(cu_.capture_end(stream_, &graph_), "cuStreamEndCapture");
        call(cu_.instantiate(&exec_, graph_, 0), "cuGraphInstantiate");
        return exec_;
    }
    void patch(std::size_t kernel, const Work &work) override {
        Work copy = work;
        void *parameters[] = {&copy.data, &copy.weight, &copy.words, &copy.salt};
        struct {  // CUDA_KERNEL_NODE_PARAMS_v1
            void *function;
            unsigned grid[3], block[3], shared;
            void **parameters, **extra;
        } node = {step_, {1, 1, 1}, {kThreads, 1, 1}, 0, parameters, nullptr};
        call(cu_.set_params(exec_, nodes_[kernel], &node), "cuGraphExecKernelNodeSetParams");
    }
    void launch() override { call(cu_.graph_launch(exec_, stream_), "cuGraphLaunch"); }
    void wait() override { call(cu_.stream_synchronize(stream_), "cuStreamSynchronize"); }
    void hold() override {
        std::uint64_t nanoseconds = 3000000;
        void *parameters[] = {&nanoseconds};
        call(cu_.launch_kernel(hold_, 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr), "cuLaunchKernel");
    }
    void mark(int event) override { call(cu_.event_record(events_[event], stream_), "cuEventRecord"); }
    double between_us() override {
        float milliseconds = 0;
        call(cu_.event_elapsed(&milliseconds, events_[0], events_[1]), "cuEventElapsedTime");
        return milliseconds * 1e3;
    }

   private:
    static void call(int status, const char *what) {
        if (status != 0) give_up(std::string(what) + ": CUDA error " + std::to_string(status));
    }
    void start() {
        void *context = nullptr, *module = nullptr;
        call(cu_.retain(&context, 0), "cuDevicePrimaryCtxRetain");
        call(cu_.push(context), "cuCtxPushCurrent");
        call(cu_.stream_create(&stream_, 1), "cuStreamCreate");  // non-blocking
        call(cu_.module_load(&module, kPtx), "cuModuleLoadData");
        call(cu_.module_function(&step_, module, "xla_step"), "cuModuleGetFunction");
        call(cu_.module_function(&hold_, module, "xla_hold"), "cuModuleGetFunction");
        for (void *&event : events_) call(cu_.event_create(&event, 0), "cuEventCreate");
    }
    Cuda cu_;
    void *stream_ = nullptr, *step_ = nullptr, *hold_ = nullptr, *graph_ = nullptr, *exec_ = nullptr;
    void *events_[2] = {};
    std::vector<void *> nodes_;
};

// The host driver's: its addresses are the process's own, and a kernel is a function of its stream.
class HostMachine : public Machine {
   public:
    explicit HostMachine(const gvmm::Device &device) : stream_(check(gvmm::Stream::create(device))) {}
    void *stream() override { return stream_.get(); }
    void write(std::uint64_t to, const void *from, std::size_t bytes) override { std::memcpy(at(to), from, bytes); }
    void read(void *to, std::uint64_t from, std::size_t bytes) override { std::memcpy(to, at(from), bytes); }
    void begin_recording() override {
        graph_ = gvmm::Graph();
        work_.clear();
        check(stream_.capture_begin());
    }
    void add(const Work &work) override {
        work_.push_back(std::make_unique<Work>(work));
        check(stream_.host_function(run, work_.back().get()));
    }
    void *end_recording() override {
        graph_ = check(stream_.capture_end());
        return graph_.get();
    }
    void patch(std::size_t kernel, const Work &work) override {
        wait();  // a launch under way has no parameters of its own here
        *work_[kernel] = work;
    }
    void launch() override { check(graph_.launch(stream_.get())); }
    void wait() override { check(stream_.synchronize()); }
    void hold() override {}
    void mark(int event) override {
        wait();
        marks_[event] = std::chrono::steady_clock::now();
    }
    double between_us() override { return std::chrono::duration<double, std::micro>(marks_[1] - marks_[0]).count(); }

   private:
    static void *at(std::uint64_t address) { return reinterpret_cast<void *>(address); }
    static void run(void *work) {
        auto &w = *static_cast<Work *>(work);
        auto *data = static_cast<std::uint32_t *>(at(w.data)), *weight = static_cast<std::uint32_t *>(at(w.weight));
        for (std::uint32_t i = 0; i < w.words; i++) data[i] = data[i] * 3 + weight[i] + w.salt;
    }
    gvmm::Stream stream_;
    gvmm::Graph graph_;
    std::vector<std::unique_ptr<Work>> work_;
    std::chrono::steady_clock::time_point marks_[2];
};

// A buffer with memory of its own, as XLA's vmm allocator gives them.
struct Buffer {
    gvmm::Allocation memory;
    gvmm_buffer seen;
};

Buffer allocate(const gvmm::Device &device, std::uint64_t bytes) {
    gvmm::Allocation memory = check(gvmm::Allocation::create(device, bytes));
    gvmm_allocation_info info = check(memory.query());
    gvmm_buffer seen{memory.address(), info.size_bytes, memory.address(), info.block};
    return {std::move(memory), seen};
}

// The program: its buffers, and which kernel uses which.
struct Program {
    std::vector<Buffer> weights, others, moving[kSets];
    std::vector<std::vector<std::uint32_t>> weight_words, expected[kSets];
    std::size_t kernels;

    Program(const gvmm::Device &device, std::size_t kernel_count, bool small) : kernels(kernel_count) {
        for (const Kind &kind : kWeights)
            for (std::size_t i = 0; i < kind.count; i++)
                weights.push_back(allocate(device, small ? std::min<std::uint64_t>(kind.bytes, 1 << 20) : kind.bytes));
        for (const Kind &kind : kOthers)
            for (std::size_t i = 0; i < kind.count; i++) others.push_back(allocate(device, kind.bytes));
        for (auto &set : moving)
            for (std::size_t i = 0; i < kMoving; i++) set.push_back(allocate(device, moving_bytes(i)));
    }
    Work work(std::size_t kernel, std::uint64_t data) const {
        std::size_t slot = kernel % kMoving;
        std::uint64_t weight = weights[kernel % weights.size()].seen.address;
        return {data, weight, static_cast<std::uint32_t>(moving_bytes(slot) / 4), static_cast<std::uint32_t>(kernel)};
    }
    // Writes what all begin with, here and there.
    void start(Machine &machine) {
        std::uint32_t seed = 1;
        auto next = [&seed] { return seed = seed * 1664525 + 1013904223; };
        weight_words.resize(weights.size());
        for (std::size_t w = 0; w < weights.size(); w++) {
            weight_words[w].resize(moving_bytes(0) / 4);
            std::generate(weight_words[w].begin(), weight_words[w].end(), next);
            machine.write(weights[w].seen.address, weight_words[w].data(), moving_bytes(0));
        }
        for (std::size_t set = 0; set < kSets; set++) {
            expected[set].resize(kMoving);
            for (std::size_t i = 0; i < kMoving; i++) {
                expected[set][i].resize(moving_bytes(i) / 4);
                std::generate(expected[set][i].begin(), expected[set][i].end(), next);
                machine.write(moving[set][i].seen.address, expected[set][i].data(), moving_bytes(i));
            }
        }
    }
    // What a step on a set makes of it.
    void expect(std::size_t set) {
        for (std::size_t k = 0; k < kernels; k++) {
            std::vector<std::uint32_t> &data = expected[set][k % kMoving];
            const std::vector<std::uint32_t> &weight = weight_words[k % weights.size()];
            for (std::size_t i = 0; i < data.size(); i++)
                data[i] = data[i] * 3 + weight[i] + static_cast<std::uint32_t>(k);
        }
    }
    std::size_t wrong(Machine &machine) const {
        std::size_t count = 0;
        for (std::size_t set = 0; set < kSets; set++)
            for (std::size_t i = 0; i < kMoving; i++) {
                std::vector<std::uint32_t> seen(expected[set][i].size());
                machine.read(seen.data(), moving[set][i].seen.address, moving_bytes(i));
                count += seen != expected[set][i];
            }
        return count;
    }
    // The slots, and what stands behind them in a step.
    std::vector<gvmm_slot> slots() const {
        std::vector<gvmm_slot> slots;
        for (std::size_t i = 0; i < kMoving; i++) slots.push_back({moving_bytes(i), GVMM_DIRECTION_IN_OUT, 0, 0, 0, 0, 0});
        for (const Buffer &b : weights) slots.push_back({b.seen.size_bytes, GVMM_DIRECTION_IN, 0, 0, 0, 0, 0});
        for (const Buffer &b : others) slots.push_back({b.seen.size_bytes, GVMM_DIRECTION_IN, 0, 0, 0, 0, 0});
        return slots;
    }
    std::vector<gvmm_buffer> buffers(std::size_t set) const {
        std::vector<gvmm_buffer> buffers;
        for (const Buffer &b : moving[set]) buffers.push_back(b.seen);
        for (const Buffer &b : weights) buffers.push_back(b.seen);
        for (const Buffer &b : others) buffers.push_back(b.seen);
        return buffers;
    }
};

// A way to get the step's buffers to the graph's kernels.
class Way {
   public:
    virtual ~Way() = default;
    virtual std::string name() const = 0;
    virtual void step(std::size_t set) = 0;
    std::size_t patched = 0, copied = 0, launches = 0, remapped = 0, recorded = 0;
};

// The buffers do not move at all: what the graph alone takes.
class Still : public Way {
   public:
    Still(Machine &machine, const Program &program) : machine_(machine) {
        machine.begin_recording();
        for (std::size_t k = 0; k < program.kernels; k++)
            machine.add(program.work(k, program.moving[0][k % kMoving].seen.address));
        machine.end_recording();
        recorded++;
    }
    std::string name() const override { return "nothing moves"; }
    void step(std::size_t) override { machine_.launch(); }

   protected:
    Machine &machine_;
};

// As XLA: each node whose buffer is another one gets its parameters anew.
class Patched : public Still {
   public:
    Patched(Machine &machine, const Program &program) : Still(machine, program), program_(program) {}
    std::string name() const override { return "patched, as XLA"; }
    void step(std::size_t set) override {
        patched = 0;
        for (std::size_t k = 0; k < program_.kernels && set != set_; k++, patched++)
            machine_.patch(k, program_.work(k, program_.moving[set][k % kMoving].seen.address));
        set_ = set;
        machine_.launch();
    }

   private:
    const Program &program_;
    std::size_t set_ = 0;
};

class Bound : public Way {
   public:
    Bound(Machine &machine, const Program &program, const gvmm::Device &device, bool in_graph)
        : machine_(machine), program_(program), in_graph_(in_graph), binding_(check(gvmm::Binding::create(device, program.slots()))) {
        for (std::size_t set = 0; set < kSets; set++) buffers_[set] = program.buffers(set);
    }
    std::string name() const override { return in_graph_ ? "binding, copies in the graph" : "binding"; }
    void step(std::size_t set) override {
        gvmm_step_report begun = gvmm::sized<gvmm_step_report>(), ended = begun;
        while (!check(binding_.begin(machine_.stream(), buffers_[set], &begun))) record();
        machine_.launch();
        check(binding_.end(&ended));
        copied = begun.copied_slots, remapped = begun.remapped_slots;
        launches = begun.copy_launches + ended.copy_launches;
    }

   private:
    void record() {
        std::vector<std::uint64_t> addresses = check(binding_.addresses());
        machine_.begin_recording();
        if (in_graph_) check(binding_.record_copies(machine_.stream(), GVMM_COPIES_IN));
        for (std::size_t k = 0; k < program_.kernels; k++) machine_.add(program_.work(k, addresses[k % kMoving]));
        if (in_graph_) check(binding_.record_copies(machine_.stream(), GVMM_COPIES_OUT));
        void *graph = machine_.end_recording();
        if (in_graph_) check(binding_.use_graph(graph));
        recorded++;
    }
    Machine &machine_;
    const Program &program_;
    bool in_graph_;
    gvmm::Binding binding_;
    std::vector<gvmm_buffer> buffers_[kSets];
};

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values.empty() ? 0 : values[values.size() / 2];
}

double since_us(std::chrono::steady_clock::time_point from) {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - from).count();
}

// Runs the steps of a way and prints its row; what is wrong afterwards.
std::size_t run(Way &way, Machine &machine, Program &program, std::size_t steps) {
    bool still = way.name() == "nothing moves";
    auto set_of = [still](std::size_t step) { return still ? 0 : step % kSets; };
    std::size_t step = 0;
    auto next = [&] {
        way.step(set_of(step));
        program.expect(set_of(step++));
    };
    program.start(machine);
    for (std::size_t i = 0; i < 4; i++) next();
    machine.wait();
    std::vector<double> host, gpu;
    for (std::size_t i = 0; i < steps; i++) {
        machine.hold();
        machine.mark(0);
        auto from = std::chrono::steady_clock::now();
        way.step(set_of(step));
        host.push_back(since_us(from));
        machine.mark(1);
        machine.wait();
        program.expect(set_of(step++));
        gpu.push_back(machine.between_us());
    }
    auto from = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < steps; i++) way.step(set_of(step + i));
    machine.wait();
    double row = since_us(from) / static_cast<double>(steps);
    for (std::size_t i = 0; i < steps; i++) program.expect(set_of(step++));
    std::size_t wrong = program.wrong(machine);
    std::printf("| %s | %zu | %zu | %zu | %zu | %zu | %zu | %.1f | %.1f | %.1f |\n", way.name().c_str(), way.recorded, way.patched,
                way.remapped, way.copied, way.launches, wrong, median(host), median(gpu), row);
    return wrong;
}

}  // namespace

int main(int argc, char **argv) {
    std::size_t steps = 200, kernels = 344;
    bool host = false;
    for (int i = 1; i < argc; i++) {
        std::string word = argv[i];
        if (word == "--host") host = true;
        else if (word == "--steps" && i + 1 < argc) steps = std::strtoul(argv[++i], nullptr, 10);
        else if (word == "--kernels" && i + 1 < argc) kernels = std::strtoul(argv[++i], nullptr, 10);
        else give_up("usage: xla_step [--steps N] [--kernels N] [--host]");
    }
    if (steps == 0 || kernels < kMoving) give_up("at least 1 step and 100 kernels");
    std::unique_ptr<Machine> machine = host ? nullptr : CudaMachine::make();
    if (!host && !machine) {
        std::printf("skipped: no CUDA driver\n");
        return 77;
    }
    gvmm::Device device = check(gvmm::Device::open(gvmm::Api::linked(), host ? GVMM_DRIVER_HOST : GVMM_DRIVER_CUDA));
    gvmm_device_info info = check(device.query());
    if (host) machine = std::make_unique<HostMachine>(device);
    Program program(device, kernels, host);
    std::printf("%s: %zu kernels, 494 buffers, %zu of them move in each step; %zu steps\n", info.name, kernels, kMoving, steps);
    if (info.simulated_costs[0] != '\0') std::printf("Times are simulated: %s.\n", info.simulated_costs);
    std::printf("\n");
    std::printf("| way | recorded | nodes patched | slots remapped | slots copied | copy launches | wrong buffers | host us | GPU us "
                "| us a step in a row |\n|---|---|---|---|---|---|---|---|---|---|\n");
    std::size_t wrong = 0;
    {
        Still still(*machine, program);
        wrong += run(still, *machine, program, steps);
    }
    {
        Patched patched(*machine, program);
        wrong += run(patched, *machine, program, steps);
    }
    {
        Bound bound(*machine, program, device, false);
        wrong += run(bound, *machine, program, steps);
    }
    if (info.capabilities & GVMM_CAPABILITY_ROUTES) {
        Bound bound(*machine, program, device, true);
        wrong += run(bound, *machine, program, steps);
    }
    check(device.forget(machine->stream()));
    check(device.drain());
    machine.reset();
    return wrong != 0;
}
