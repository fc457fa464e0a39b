/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The language of the kernels, as far as they use it, on fibers: first what the kernels see, then
 * the kernels, then the scheduler. One launch at a time.
 */
#include "tests/cuda_on_cpu.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>

#include "cuda_bf16.h"
#include "train/cuda/arguments.h"

#define __global__
#define __device__
#define __host__
#define __shared__
#define __forceinline__ inline
#define __launch_bounds__(...)

namespace {

enum {
  MOST_THREADS = 1024,
  WARP_LANES = 32,
  STACK_BYTES = (64 << 10) + 5 * 64, /* so that stacks do not begin in the same sets of a cache */
  SHARED_BYTES = 228 << 10,
  MOST_COPIES = 64 /* of a thread, that it has not waited for */
};

struct index3 {
  unsigned x, y, z;
};

/* splitmix64 (Steele, Lea and Flood 2014). */
struct random_stream {
  uint64_t state;

  unsigned below(unsigned bound) {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return unsigned((z ^ z >> 31) % bound);
  }
};

index3 gridDim, blockDim, blockIdx, threadIdx;

enum fiber_state { READY, AT_BARRIER, AT_COLLECTIVE, ENDED };

/* A copy to shared memory on its way; one that does not exist brings zeros. */
struct copy {
  void *to;
  const void *from;
  unsigned bytes;
  bool exists;
};

/* What a warp does together, given an operand of each lane. */
typedef void (*joint_work)(void *const *lanes);

struct fiber {
  void *place[5]; /* where it goes on */
  bool made;      /* it has a place */
  fiber_state state;
  index3 thread;
  uint32_t mask;   /* of a collective: the lanes that take part */
  unsigned source; /* the lane whose value is wanted */
  uint64_t value, result;
  uint32_t ballot; /* the lanes whose value is not 0 */
  joint_work work; /* or nullptr */
  void *operand;
  unsigned copy_count;
};

fiber fibers[MOST_THREADS];
copy copies[MOST_THREADS][MOST_COPIES]; /* of each fiber, that are on their way */
unsigned char *stacks;
unsigned fiber_count, current;
random_stream *drawn; /* of the launch */
const char *fault;    /* the first that was seen */

void report(const char *what) {
  if (fault == nullptr) fault = what;
}

/* Fibers change places by the compiler's own jumps, which save three registers and ask nothing of
 * the system. The thread sanitizer counts calls and returns, and would miss returns here. */
#define JUMPS [[gnu::noinline, gnu::no_sanitize_thread]]
void *scheduler_place[5];

JUMPS void jump_to(void **place) {
  __builtin_longjmp(place, 1);
}

JUMPS void change_places(void **here, void **there) {
  if (__builtin_setjmp(here) == 0) jump_to(there);
}

/* Called blindly: a compiler that saw which registers the function uses would keep values in the
 * others meanwhile. */
void (*volatile leave_for)(void **here, void **there) = change_places;

void wait_as(fiber_state state) {
  fiber &self = fibers[current];
  self.state = state;
  leave_for(self.place, scheduler_place);
}

/* --- what the kernels see --- */

/* The barriers of the sources by their places, in the order in which launches came to them first.
 */
enum { MOST_BARRIERS = 64 };
const char *barrier_places[MOST_BARRIERS];
unsigned barrier_count, weakened = CUDA_ON_CPU_ALL_BARRIERS;
uint64_t barriers_met;

/* A place in a template is one, however often that is instantiated. */
unsigned barrier_at(const char *place) {
  unsigned barrier = 0;
  while (barrier < barrier_count && std::strcmp(barrier_places[barrier], place) != 0) {
    barrier++;
  }
  if (barrier == MOST_BARRIERS) std::abort();
  if (barrier == barrier_count) barrier_places[barrier_count++] = place;
  return barrier;
}

/* Whether the barrier is as strong as it should be. */
bool come_to(unsigned barrier) {
  barriers_met |= uint64_t(1) << barrier;
  return barrier != weakened;
}

inline int __syncthreads_or(int value) {
  fibers[current].value = value != 0;
  wait_as(AT_BARRIER);
  return int(fibers[current].result);
}

fiber &collect(uint32_t mask, unsigned source, uint64_t value) {
  fiber &self = fibers[current];
  self.mask = mask;
  self.source = source;
  self.value = value;
  self.work = nullptr;
  wait_as(AT_COLLECTIVE);
  return self;
}

/* Has the work done once all lanes of the warp have come for it. */
inline void do_together(joint_work work, void *operand) {
  fiber &self = fibers[current];
  self.mask = 0xffffffffu;
  self.source = current % WARP_LANES;
  self.value = 0;
  self.work = work;
  self.operand = operand;
  wait_as(AT_COLLECTIVE);
}

inline unsigned lane_of(unsigned thread) {
  return thread % WARP_LANES;
}

template <typename T> T exchange(uint32_t mask, T value, unsigned source) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = collect(mask, source, bits).result;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <typename T>
T __shfl_xor_sync(uint32_t mask, T value, unsigned lanes, unsigned width = WARP_LANES) {
  unsigned lane = lane_of(current), source = lane ^ lanes;
  return exchange(mask, value, source / width == lane / width ? source : lane);
}

template <typename T>
T __shfl_sync(uint32_t mask, T value, unsigned source, unsigned width = WARP_LANES) {
  unsigned lane = lane_of(current);
  return exchange(mask, value, lane / width * width + source % width);
}

inline float __fmul_rn(float a, float b) {
  return a * b;
}

inline uint32_t __ballot_sync(uint32_t mask, bool value) {
  return collect(mask, lane_of(current), value).ballot;
}

void meet_warp() {
  collect(0xffffffffu, lane_of(current), 0);
}

void block_barrier(unsigned barrier) {
  if (come_to(barrier)) {
    wait_as(AT_BARRIER);
  } else {
    meet_warp();
  }
}

void warp_barrier(unsigned barrier) {
  if (come_to(barrier)) meet_warp();
}

#define TEXT_OF(number) #number
#define PLACE(line)     __FILE__ ":" TEXT_OF(line)
#define BARRIER                                                                                    \
  [] {                                                                                             \
    static const unsigned barrier = barrier_at(PLACE(__LINE__));                                   \
    return barrier;                                                                                \
  }()
#define __syncthreads() block_barrier(BARRIER)
#define __syncwarp()    warp_barrier(BARRIER)

inline int __popc(uint32_t bits) {
  return __builtin_popcount(bits);
}

using std::isnan;
using std::max;
using std::min;

alignas(128) float dynamic_shared[SHARED_BYTES / sizeof(float)];

inline void check_shared(const void *address, size_t alignment) {
  uintptr_t first = reinterpret_cast<uintptr_t>(dynamic_shared);
  uintptr_t at = reinterpret_cast<uintptr_t>(address);
  if (at % alignment != 0) report("an address in shared memory is not aligned");
  if (at < first || at - first >= SHARED_BYTES) report("an address is not in shared memory");
}

inline void land(const copy &landing) {
  if (landing.exists) {
    std::memcpy(landing.to, landing.from, landing.bytes);
  } else {
    std::memset(landing.to, 0, landing.bytes);
  }
}

inline void begin_copy(const copy &begun) {
  fiber &self = fibers[current];
  check_shared(begun.to, begun.bytes);
  if (reinterpret_cast<uintptr_t>(begun.from) % begun.bytes != 0) {
    report("what is copied to shared memory is not aligned");
  } else if (self.copy_count == MOST_COPIES) {
    report("a thread has too many copies on their way");
  } else if (fault == nullptr && drawn->below(2) == 0) {
    land(begun);
  } else {
    copies[current][self.copy_count++] = begun;
  }
}

inline void land_copies() {
  fiber &self = fibers[current];
  for (unsigned i = 0; i < self.copy_count && fault == nullptr; i++) {
    land(copies[current][i]);
  }
  self.copy_count = 0;
}

#include "train/cuda/kernels.cu"

/* --- the table of kernels --- */

struct entry {
  const char *name;
  size_t arguments_bytes;
  void (*run)(const void *arguments);
};

template <typename A, void (*kernel)(A)> void call(const void *arguments) {
  kernel(*static_cast<const A *>(arguments));
}

#define ENTRY(name, arguments)                                                                     \
  { #name, sizeof(struct arguments), call < struct arguments, name> }
#define TYPED(name) ENTRY(name##_f32, name), ENTRY(name##_bf16, name)
#define PLAIN(name) ENTRY(name, name)
#define HEADS(name, arguments)                                                                     \
  ENTRY(name##_64_f32, arguments), ENTRY(name##_128_f32, arguments),                               \
      ENTRY(name##_256_f32, arguments), ENTRY(name##_64_bf16, arguments),                          \
      ENTRY(name##_128_bf16, arguments), ENTRY(name##_256_bf16, arguments)

#define TENSOR(name, arguments) ENTRY(name##_64, arguments), ENTRY(name##_128, arguments)

const entry entries[] = {
    TYPED(cuda_embed),
    TYPED(cuda_embed_tokens),
    TYPED(cuda_embed_positions),
    TYPED(cuda_layernorm),
    TYPED(cuda_layernorm_backward),
    TYPED(cuda_column_sums),
    TYPED(cuda_gelu),
    TYPED(cuda_gelu_backward),
    PLAIN(cuda_sum_squares),
    PLAIN(cuda_total),
    PLAIN(cuda_norm),
    PLAIN(cuda_rates),
    TYPED(cuda_adamw),
    TYPED(cuda_head_sums),
    PLAIN(cuda_head_loss),
    TYPED(cuda_head_gradient),
    HEADS(cuda_attention, cuda_attention),
    TENSOR(cuda_attention_tensor, cuda_attention),
    TYPED(cuda_attention_delta),
    HEADS(cuda_attention_queries, cuda_attention_backward),
    HEADS(cuda_attention_keys, cuda_attention_backward),
    TENSOR(cuda_attention_queries_tensor, cuda_attention_backward),
    TENSOR(cuda_attention_keys_tensor, cuda_attention_backward),
};

/* --- the scheduler --- */

const entry *running;
const void *running_arguments;

/* A fiber is made once: the next block that has a thread of its number goes on here. */
void fiber_main() {
  for (;;) {
    running->run(running_arguments);
    if (fibers[current].copy_count != 0) report("a thread ended before its copies");
    wait_as(ENDED);
  }
}

JUMPS void make_fiber(fiber &f) {
  ucontext_t start;
  getcontext(&start);
  start.uc_stack.ss_sp = stacks + size_t(&f - fibers) * STACK_BYTES;
  start.uc_stack.ss_size = STACK_BYTES;
  start.uc_link = nullptr;
  makecontext(&start, fiber_main, 0);
  f.made = true;
  if (__builtin_setjmp(scheduler_place) == 0) setcontext(&start);
}

void start_fiber(unsigned i) {
  fiber &f = fibers[i];
  f.state = READY;
  f.value = f.result = 0;
  f.copy_count = 0;
  f.thread = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
}

/* Runs a fiber until it waits. */
void run_fiber(unsigned i) {
  fiber &f = fibers[i];
  current = i;
  threadIdx = f.thread;
  if (f.made) {
    leave_for(scheduler_place, f.place);
  } else {
    make_fiber(f);
  }
}

void shuffle(random_stream *random, unsigned *order, unsigned count) {
  for (unsigned i = count; i > 1; i--) {
    std::swap(order[i - 1], order[random->below(i)]);
  }
}

/* Lets lanes of a warp go, who all are at a collective of theirs. */
void release_lanes(unsigned first, uint32_t mask) {
  fiber *lanes = fibers + first;
  const joint_work work = lanes[__builtin_ctz(mask)].work;
  void *operands[WARP_LANES] = {};
  uint32_t ballot = 0;
  for (unsigned i = 0; i < WARP_LANES; i++) {
    if ((mask >> i & 1) == 0) continue;
    if (lanes[i].work != work) report("lanes of a warp do different things together");
    operands[i] = lanes[i].operand;
    ballot |= uint32_t(lanes[i].value != 0) << i;
  }
  if (work != nullptr && fault == nullptr) work(operands);
  for (unsigned i = 0; i < WARP_LANES; i++) {
    if ((mask >> i & 1) == 0) continue;
    lanes[i].result = lanes[lanes[i].source].value;
    lanes[i].ballot = ballot;
    lanes[i].state = READY;
  }
}

/* Lets the lanes of collectives go once all of them are there. */
void release_warp(unsigned first) {
  unsigned count = min<unsigned>(WARP_LANES, fiber_count - first);
  uint32_t seen = 0;
  for (unsigned lane = 0; lane < count; lane++) {
    const fiber &f = fibers[first + lane];
    if (f.state != AT_COLLECTIVE || (seen >> lane & 1) != 0) continue;
    uint32_t there = 0;
    for (unsigned i = 0; i < count; i++) {
      const fiber &other = fibers[first + i];
      there |= uint32_t(other.state == AT_COLLECTIVE && other.mask == f.mask) << i;
    }
    seen |= there;
    if (there == f.mask) release_lanes(first, f.mask);
  }
}

/* Lets the block go where all of it is at the barrier; false where nobody can go on. */
bool release_block() {
  bool any = false;
  for (unsigned i = 0; i < fiber_count; i++) {
    if (fibers[i].state != AT_BARRIER) return false;
    any = any || fibers[i].value != 0;
  }
  for (unsigned i = 0; i < fiber_count; i++) {
    fibers[i].result = any;
    fibers[i].value = 0;
    fibers[i].state = READY;
  }
  return true;
}

/* Of each warp, the rounds that it still sleeps. */
unsigned sleep_rounds[MOST_THREADS / WARP_LANES];

/* Runs the fibers that are ready in a drawn order, but for those of warps that sleep for some
 * rounds, so that warps get far apart; returns how many are ready in all. Rounds in which all of
 * these would sleep are left out. */
unsigned run_ready(random_stream *random) {
  static unsigned order[MOST_THREADS];
  unsigned count = 0, ready = 0, soonest = ~0u;
  for (unsigned first = 0; first < fiber_count; first += WARP_LANES) {
    unsigned &rounds = sleep_rounds[first / WARP_LANES];
    if (rounds > 0) {
      rounds--;
    } else if (random->below(8) == 0) {
      rounds = random->below(32);
    }
    const unsigned end = min<unsigned>(first + WARP_LANES, fiber_count), before = ready;
    for (unsigned i = first; i < end; i++) {
      if (fibers[i].state != READY) continue;
      ready++;
      if (rounds == 0) order[count++] = i;
    }
    if (ready != before) soonest = min(soonest, rounds);
  }
  if (soonest != 0 && ready != 0) {
    for (unsigned &rounds : sleep_rounds) {
      rounds -= min(rounds, soonest - 1);
    }
  }
  shuffle(random, order, count);
  for (unsigned i = 0; i < count; i++) {
    run_fiber(order[i]);
  }
  return ready;
}

/* Behind what the launch asked for all bytes are 0xff, before each block and after it. */
const char *run_block(const cuda_on_cpu_launch *launch, random_stream *random) {
  std::memset(dynamic_shared, 0xff, launch->shared_bytes);
  std::memset(sleep_rounds, 0, sizeof sleep_rounds);
  for (unsigned i = 0; i < fiber_count; i++) {
    start_fiber(i);
  }
  while (fault == nullptr) {
    if (run_ready(random) != 0) {
      for (unsigned first = 0; first < fiber_count; first += WARP_LANES) {
        release_warp(first);
      }
      continue;
    }
    bool ended = true;
    for (unsigned i = 0; i < fiber_count; i++) {
      ended = ended && fibers[i].state == ENDED;
    }
    if (ended) break;
    if (!release_block()) return "threads of a block wait for others that never come";
  }
  const unsigned char *behind =
      reinterpret_cast<const unsigned char *>(dynamic_shared) + launch->shared_bytes;
  size_t bytes = sizeof dynamic_shared - launch->shared_bytes;
  if (behind[0] != 0xff || std::memcmp(behind, behind + 1, bytes - 1) != 0) {
    return "a kernel wrote past its dynamic shared memory";
  }
  return fault;
}

const char *check(const cuda_on_cpu_launch *launch) {
  for (const entry &candidate : entries) {
    if (std::strcmp(candidate.name, launch->kernel) == 0) running = &candidate;
  }
  if (running == nullptr) return "there is no kernel of that name";
  if (running->arguments_bytes != launch->arguments_bytes) return "the arguments have another size";
  if (fiber_count == 0 || fiber_count > MOST_THREADS) return "no block has that many threads";
  if (launch->shared_bytes > SHARED_BYTES - 1024) return "no block has that much shared memory";
  if (launch->grid[0] == 0 || launch->grid[1] == 0 || launch->grid[2] == 0) return "an empty grid";
  if (launch->grid[1] > 65535 || launch->grid[2] > 65535) return "no grid is that large";
  return nullptr;
}

} // namespace

uint64_t cuda_on_cpu_barriers_met(void) {
  uint64_t met = barriers_met;
  barriers_met = 0;
  return met;
}

const char *cuda_on_cpu_barrier_name(unsigned barrier) {
  return barrier_places[barrier];
}

void cuda_on_cpu_weaken(unsigned barrier) {
  weakened = barrier;
}

const char *cuda_on_cpu_run(const struct cuda_on_cpu_launch *launch) {
  gridDim = {launch->grid[0], launch->grid[1], launch->grid[2]};
  blockDim = {launch->block[0], launch->block[1], launch->block[2]};
  fiber_count = blockDim.x * blockDim.y * blockDim.z;
  running = nullptr;
  running_arguments = launch->arguments;
  fault = check(launch);
  if (fault != nullptr) return fault;
  if (stacks == nullptr)
    stacks = static_cast<unsigned char *>(std::malloc(size_t(MOST_THREADS) * STACK_BYTES));
  if (stacks == nullptr) return "out of memory";
  std::memset(dynamic_shared, 0xff, sizeof dynamic_shared);
  random_stream random = {launch->seed};
  drawn = &random;
  unsigned blocks = gridDim.x * gridDim.y * gridDim.z;
  unsigned *order = new unsigned[blocks];
  for (unsigned i = 0; i < blocks; i++) {
    order[i] = i;
  }
  shuffle(&random, order, blocks);
  for (unsigned i = 0; i < blocks && fault == nullptr; i++) {
    unsigned at = order[i];
    blockIdx = {at % gridDim.x, at / gridDim.x % gridDim.y, at / gridDim.x / gridDim.y};
    fault = run_block(launch, &random);
  }
  delete[] order;
  for (unsigned i = 0; i < fiber_count && fault != nullptr; i++) {
    fibers[i].made = false; /* they wait for what never comes */
  }
  drawn = nullptr;
  return fault;
}
