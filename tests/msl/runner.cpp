// Owns: running a kernel's grid: fibers and their switches, the order of threads, and the way in and out of the process.
// Refuses: what `harness.h` refuses, a kernel that changes a buffer which it only reads, and one that does not end.
// Invariants: every buffer is an allocation of its own of exactly its size, so that AddressSanitizer sees what lies outside;
// a run is asked for and answered in one message each, through standard input and output.
#include "harness.h"
#include <cstdio>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <sys/time.h>
#include <unistd.h>
#include <vector>
#if defined(__has_feature) && __has_feature(address_sanitizer)
#include <sanitizer/common_interface_defs.h>
#else
static void __sanitizer_start_switch_fiber(void **, const void *, size_t) {}
static void __sanitizer_finish_switch_fiber(void *, const void **, size_t *) {}
#endif
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace harness {

Group group;
Array *arrays = nullptr;

constexpr size_t STACK_BYTES = 256 << 10;
constexpr size_t THREADGROUP_BYTES = 32 << 10;

void fail(const char *what, const char *detail, int line) {
    std::fprintf(stderr, "harness: %s: %s (thread %u, line %d)\n", what, detail, group.now, line);
    std::fflush(stderr);
    std::_Exit(3);
}

#if defined(__x86_64__)
// Leaves where it was called in *from and goes on in `to`, keeping what a call keeps.
extern "C" void harness_switch(void **from, void *to);
asm(R"(
    .text
    .type harness_switch, @function
harness_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size harness_switch, .-harness_switch
)");

// A stack on which a switch begins `entry`: six registers, its address, and a place that keeps 16 bytes aligned.
static void *begun(unsigned char *stack, void (*entry)()) {
    void **top = reinterpret_cast<void **>(stack + STACK_BYTES) - 8;
    std::memset(top, 0, 8 * sizeof *top);
    top[6] = reinterpret_cast<void *>(entry);
    return top;
}
#else
// Processors without a switch of our own: what C offers, which takes longer.
struct Context {
    ucontext_t saved;
};
static void harness_switch(void **from, void *to) {
    Context here;
    *from = &here;
    swapcontext(&here.saved, &static_cast<Context *>(to)->saved);
}
static void *begun(unsigned char *stack, void (*entry)()) {
    Context *context = new (stack) Context;
    getcontext(&context->saved);
    context->saved.uc_stack.ss_sp = stack + sizeof(Context);
    context->saved.uc_stack.ss_size = STACK_BYTES - sizeof(Context);
    context->saved.uc_link = nullptr;
    makecontext(&context->saved, entry, 0);
    return context;
}
#endif

// What the runner itself is, between fibers.
struct Runner {
    void *stack_pointer, *fake_stack;
    const void *stack;
    size_t stack_bytes;
    void **buffers;
    Place place;
    unsigned char *stacks;
};
static Runner runner;

static unsigned char *stack_of(unsigned thread) { return runner.stacks + size_t(thread) * STACK_BYTES; }

void pause() {
    void *fake;
    unsigned thread = group.now;
    __sanitizer_start_switch_fiber(&fake, runner.stack, runner.stack_bytes);
    harness_switch(&group.fibers[thread].stack_pointer, runner.stack_pointer);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
}

static void begin() {
    __sanitizer_finish_switch_fiber(nullptr, &runner.stack, &runner.stack_bytes);
    runner.place.index = group.now;
    run_thread(runner.buffers, runner.place);
    own().state = State::DONE;
    __sanitizer_start_switch_fiber(nullptr, runner.stack, runner.stack_bytes);
    harness_switch(&own().stack_pointer, runner.stack_pointer);
    std::abort();
}

static void resume(unsigned thread) {
    group.now = thread;
    __sanitizer_start_switch_fiber(&runner.fake_stack, stack_of(thread), STACK_BYTES);
    harness_switch(&runner.stack_pointer, own().stack_pointer);
    __sanitizer_finish_switch_fiber(runner.fake_stack, nullptr, nullptr);
}

// Whether threads first .. end all wait at one place in one way; fails if only some of them do.
static bool together(unsigned first, unsigned end, State state, const char *what) {
    unsigned waiting = 0;
    for (unsigned i = first; i < end; i++) waiting += group.fibers[i].state == state;
    if (waiting == 0) return false;
    Site *site = nullptr;
    for (unsigned i = first; i < end; i++) {
        Fiber &fiber = group.fibers[i];
        group.now = i;
        if (fiber.state != state) {
            const char *where = fiber.state == State::DONE ? "a thread has ended" : "a thread waits elsewhere";
            fail(what, where, fiber.state == State::DONE ? 0 : fiber.site.line);
        }
        if (site && !(fiber.site == *site)) fail(what, "threads are at different lines", fiber.site.line);
        site = &fiber.site;
    }
    for (unsigned i = first; i < end; i++) group.fibers[i].state = State::READY;
    return true;
}

// Runs a SIMD-group until all of it waits for the others or has ended.
static void run_simd(unsigned first, unsigned end, bool backwards) {
    do {
        for (unsigned i = first; i < end; i++) {
            unsigned thread = backwards ? end - 1 - (i - first) : i;
            if (group.fibers[thread].state == State::READY) resume(thread);
        }
    } while (together(first, end, State::IN_SIMD, "a SIMD-group function that not all lanes reach"));
}

static void run_group(unsigned threads, bool backwards) {
    if (threads == 0 || threads % LANES != 0 || threads > MOST_THREADS) {
        fail("the threadgroup", "its threads are not whole SIMD-groups, or too many", 0);
    }
    group.threads = threads;
    group.era++;
    for (Array *array = arrays; array; array = array->next) array->forget();
    for (unsigned i = 0; i < threads; i++) {
        group.fibers[i].stack_pointer = begun(stack_of(i), begin);
        group.fibers[i].state = State::READY;
    }
    unsigned simds = (threads + LANES - 1) / LANES;
    do {
        for (unsigned s = 0; s < simds; s++) {
            unsigned first = (backwards ? simds - 1 - s : s) * LANES;
            run_simd(first, first + LANES < threads ? first + LANES : threads, backwards);
        }
    } while (together(0, threads, State::IN_BARRIER, "a barrier that not all threads reach"));
    size_t bytes = 0;
    for (Array *array = arrays; array; array = array->next) bytes += array->bytes;
    if (bytes > THREADGROUP_BYTES) fail("threadgroup memory", "more than a GPU has", 0);
}

// Standard input, or the end of it.
static bool take(void *to, size_t bytes) { return std::fread(to, 1, bytes, stdin) == bytes; }
static uint32_t take_word() {
    uint32_t word;
    if (!take(&word, sizeof word)) std::exit(4);
    return word;
}

typedef std::unique_ptr<unsigned char[]> Bytes;

// What a slot holds: one buffer, or an array of the addresses of several.
struct Argument {
    std::vector<Bytes> before, now;
    std::vector<size_t> sizes;
    std::unique_ptr<void *[]> addresses;
    bool written;

    void *bound() { return addresses ? static_cast<void *>(addresses.get()) : now[0].get(); }
    void reset() {
        for (size_t i = 0; i < sizes.size(); i++) std::memcpy(now[i].get(), before[i].get(), sizes[i]);
    }
};

static Argument take_argument() {
    uint32_t count = take_word(), is_array = take_word(), written = take_word();
    Argument argument;
    argument.written = written != 0;
    for (uint32_t i = 0; i < count; i++) {
        size_t bytes = take_word();
        argument.sizes.push_back(bytes);
        argument.before.emplace_back(new unsigned char[bytes]);
        argument.now.emplace_back(new unsigned char[bytes]);
        if (!take(argument.before[i].get(), bytes)) std::exit(4);
    }
    if (is_array) {
        argument.addresses.reset(new void *[count]);
        for (uint32_t i = 0; i < count; i++) argument.addresses[i] = argument.now[i].get();
    }
    argument.reset();
    return argument;
}

// Whether two runs of bytes are alike.
static bool alike(const unsigned char *a, const unsigned char *b, size_t bytes) {
    return bytes == 0 || std::memcmp(a, b, bytes) == 0;
}

static void run_grid(const uint32_t *grid, unsigned threads, bool backwards) {
    uint64_t all = uint64_t(grid[0]) * grid[1] * grid[2];
    for (uint64_t i = 0; i < all; i++) {
        uint64_t at = backwards ? all - 1 - i : i;
        runner.place = Place{{unsigned(at % grid[0]), unsigned(at / grid[0] % grid[1]), unsigned(at / grid[0] / grid[1])}, 0};
        run_group(threads, backwards);
    }
}

// Ends a kernel that has taken all of its processor time: a loop without an end, which would hang a GPU.
static void tell_endless(int) {
    static const char text[] = "harness: a kernel that does not end\n";
    if (write(2, text, sizeof text - 1) < 0) std::_Exit(4);
    std::_Exit(3);
}

static void limit_time() {
    const char *seconds = std::getenv("HARNESS_SECONDS");
    struct itimerval limit = {};
    limit.it_value.tv_sec = seconds ? std::atoi(seconds) : 0;
    std::signal(SIGPROF, tell_endless);
    setitimer(ITIMER_PROF, &limit, nullptr);
}

// Answers with the buffers that were written, after runs in both orders gave the same.
static void answer(std::vector<Argument> &arguments, const uint32_t *grid, unsigned threads) {
    std::vector<void *> bound;
    for (Argument &argument : arguments) bound.push_back(argument.bound());
    runner.buffers = bound.data();
    run_grid(grid, threads, false);
    std::vector<std::vector<unsigned char>> forwards;
    for (Argument &argument : arguments) {
        for (size_t i = 0; i < argument.sizes.size(); i++) {
            const unsigned char *now = argument.now[i].get();
            if (!argument.written && !alike(now, argument.before[i].get(), argument.sizes[i])) {
                fail("a buffer", "written, though the layout says that it is only read", 0);
            }
            forwards.emplace_back(now, now + argument.sizes[i]);
        }
        argument.reset();
    }
    run_grid(grid, threads, true);
    size_t next = 0;
    for (Argument &argument : arguments) {
        for (size_t i = 0; i < argument.sizes.size(); i++, next++) {
            if (!alike(argument.now[i].get(), forwards[next].data(), argument.sizes[i])) {
                fail("a buffer", "other bits when threads run in another order", 0);
            }
            if (argument.written) std::fwrite(argument.now[i].get(), 1, argument.sizes[i], stdout);
        }
    }
    std::fflush(stdout);
}

} // namespace harness

int main() {
    using namespace harness;
    runner.stacks = static_cast<unsigned char *>(aligned_alloc(4096, size_t(MOST_THREADS) * STACK_BYTES));
    group.era = 1;
    uint32_t head[5];
    while (take(head, sizeof head)) {
        std::vector<Argument> arguments;
        for (uint32_t i = 0; i < head[4]; i++) arguments.push_back(take_argument());
        limit_time();
        answer(arguments, head, head[3]);
    }
}
