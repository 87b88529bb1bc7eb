// Owns: one threadgroup on a processor: its threads as fibers, where they meet, and the threadgroup memory that they share.
// Refuses, ending the process with a sentence and the line of the kernel: a barrier or a SIMD-group function that not all
// threads reach at the same line; an element of threadgroup memory outside its array, read before it is written, or
// touched by two threads of which one writes with no barrier between.
// Invariants: one thread runs at a time, so that nothing here needs a lock; in which order threads run is the runner's.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace harness {

constexpr unsigned LANES = 32;
constexpr unsigned MOST_THREADS = 1024;
constexpr unsigned SLOT_BYTES = 64;

// A type from which none is deduced.
template <class T> struct Same { typedef T type; };

// A place in a kernel where threads meet.
struct Site {
    const char *what;
    int line;
    bool operator==(Site other) const { return line == other.line && std::strcmp(what, other.what) == 0; }
};

enum class State { READY, IN_SIMD, IN_BARRIER, DONE };

struct Fiber {
    void *stack_pointer;
    State state;
    Site site;
    // What the lane gives to the others, this time and the time before: they may still be reading that.
    alignas(16) unsigned char slots[2][SLOT_BYTES];
    unsigned turn;
};

struct Group {
    Fiber fibers[MOST_THREADS];
    unsigned threads;
    unsigned now;
    // Barriers passed that order threadgroup memory: of all threads, and of each SIMD-group. None is zero.
    uint64_t era;
    uint64_t simd_eras[MOST_THREADS / LANES];
};

extern Group group;

// Ends the process with a sentence; `line` is the kernel's, or zero.
[[noreturn]] void fail(const char *what, const char *detail, int line);

inline void inside(unsigned i, unsigned count) {
    if (i >= count) fail("outside of a vector", "a number that it does not have", 0);
}

// Where the runner takes over from a fiber.
void pause();

// Everything that tells threads apart.
struct Place {
    unsigned threadgroup[3], index;
};

// The kernel's own: calls it with its arguments, for one thread.
void run_thread(void **buffers, const Place &place);

inline Fiber &own() { return group.fibers[group.now]; }
inline unsigned lane() { return group.now % LANES; }
inline unsigned first_lane() { return group.now / LANES * LANES; }

inline void meet(State state, Site site) {
    own().state = state;
    own().site = site;
    pause();
}

// After all have arrived each counts for itself; the first of them moves the era.
inline void barrier(Site site, bool orders) {
    uint64_t before = group.era;
    meet(State::IN_BARRIER, site);
    if (orders && group.era == before) group.era++;
}

inline void simd_barrier(Site site, bool orders) {
    uint64_t &era = group.simd_eras[group.now / LANES];
    uint64_t before = era;
    meet(State::IN_SIMD, site);
    if (orders && era == before) era++;
}

// What all lanes gave.
template <class T> struct Lanes {
    unsigned first, turn;
    T operator[](unsigned lane) const {
        if (lane >= LANES) fail("SIMD-group function", "a lane past the last", 0);
        T value;
        std::memcpy(static_cast<void *>(&value), group.fibers[first + lane].slots[turn], sizeof value);
        return value;
    }
};

template <class T> Lanes<T> exchange(Site site, T value) {
    static_assert(sizeof(T) <= SLOT_BYTES, "too large for a lane's slot");
    own().turn ^= 1;
    std::memcpy(own().slots[own().turn], &value, sizeof value);
    meet(State::IN_SIMD, site);
    return Lanes<T>{first_lane(), own().turn};
}

// What stands where nothing was written: a NaN, and a number that no index survives.
template <class T> T poison() {
    T value;
    std::memset(static_cast<void *>(&value), 0xff, sizeof value);
    return value;
}

// Who touched an element last in one way, and whether it was more than one thread, or more than one SIMD-group.
struct Trace {
    uint64_t era, simd_era;
    unsigned thread;
    bool many, mixed;

    bool meets() const {
        if (era != group.era || (!many && thread == group.now)) return false;
        bool same_simd = !mixed && thread / LANES == group.now / LANES;
        return !same_simd || simd_era == group.simd_eras[group.now / LANES];
    }
    void leave() {
        bool again = era == group.era;
        many = again && (many || thread != group.now);
        mixed = again && (mixed || thread / LANES != group.now / LANES);
        era = group.era;
        simd_era = group.simd_eras[group.now / LANES];
        thread = group.now;
    }
};

enum class Touch { READ, WRITE, UPDATE };

// An element of threadgroup memory.
template <class T> struct Element {
    T value;
    bool written;
    Trace reads, writes, updates;

    void touch(Touch how, const char *array) {
        if (how != Touch::WRITE && !written) fail(array, "read before it is written", 0);
        bool raced = writes.meets() || (how != Touch::READ && reads.meets()) || (how != Touch::UPDATE && updates.meets());
        if (raced) fail(array, "two threads, one of them writing, with no barrier between", 0);
        (how == Touch::READ ? reads : how == Touch::WRITE ? writes : updates).leave();
        written = true;
    }
};

// An array of threadgroup memory; the runner forgets all that was written before each threadgroup.
struct Array {
    Array *next;
    size_t bytes; // on a GPU
    virtual void forget() = 0;
};
extern Array *arrays;

template <class T> struct Pointer;

// An element as a kernel sees it: a T that can be assigned to.
template <class T> struct Reference {
    Pointer<T> place;
    explicit Reference(Pointer<T> place) : place(place) {}
    Reference(const Reference &) = default;
    operator T() const { return place.read(); }
    Reference &operator=(T value) { return place.write(value), *this; }
    Reference &operator=(const Reference &other) { return *this = T(other); }
    template <class U> Reference &operator+=(U value) { return *this = T(T(*this) + value); }
    Pointer<T> operator&() const { return place; }
};

// A pointer into threadgroup memory.
template <class T> struct Pointer {
    Element<T> *elements;
    const char *name;
    size_t count;
    size_t at;

    Element<T> &element(Touch how) const {
        if (at >= count) fail(name, "outside of the array", 0);
        elements[at].touch(how, name);
        return elements[at];
    }
    T read() const { return element(Touch::READ).value; }
    void write(T value) const { element(Touch::WRITE).value = value; }
    Pointer operator+(size_t by) const { return Pointer{elements, name, count, at + by}; }
    Reference<T> operator[](size_t by) const { return Reference<T>(*this + by); }
    Reference<T> operator*() const { return Reference<T>(*this); }
};

template <class T, size_t N> struct Shared : Array {
    Element<T> elements[N];
    const char *name;
    explicit Shared(const char *name) : name(name) {
        next = arrays;
        bytes = (N * sizeof(T) + 15) / 16 * 16;
        arrays = this;
        forget();
    }
    void forget() override {
        for (Element<T> &element : elements) element = Element<T>{poison<T>(), false, {}, {}, {}};
    }
    operator Pointer<T>() { return Pointer<T>{elements, name, N, 0}; }
    Pointer<T> operator+(size_t by) { return Pointer<T>(*this) + by; }
    Reference<T> operator[](size_t i) { return Pointer<T>(*this)[i]; }
};

template <class T> struct Atomic { T value; };

template <class T> T atomic_load(Atomic<T> *place) { return place->value; }
template <class T> void atomic_store(Atomic<T> *place, T value) { place->value = value; }
template <class T, class F> T atomic_update(Atomic<T> *place, F f) {
    T old = place->value;
    place->value = f(old);
    return old;
}
template <class T> T atomic_load(Pointer<Atomic<T>> place) { return place.element(Touch::READ).value.value; }
template <class T> void atomic_store(Pointer<Atomic<T>> place, T value) { place.element(Touch::WRITE).value.value = value; }
template <class T, class F> T atomic_update(Pointer<Atomic<T>> place, F f) {
    return atomic_update(&place.element(Touch::UPDATE).value, f);
}

} // namespace harness
