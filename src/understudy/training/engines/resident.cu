// Plain SGD of two-layer networks, one thread block a network: its weights lie in shared memory for all the steps of a
// launch. Products are tiles of 4 × 4 numbers a thread. Compiled for one number type T,
// one number of inputs D, outputs C and samples a batch B; the number of nodes n is free.
//
// In shared memory, rows padded so that eight rows in a line touch all banks:
//   W[k][i]  first weights, V[c][k] second weights; the biases are one more column, which meets a 1
//   X[b][i]  inputs of the batch, Y[b][c] targets: two of each, the next being copied while one is used
//   H[b][k]  activations, G[b][k] gates and then what comes back through them, E[b][c] scaled residuals

typedef unsigned int word;
struct alignas(16) Four { T v[4]; };

__host__ __device__ constexpr int up(int count, int unit) { return (count + unit - 1) / unit * unit; }
__host__ __device__ constexpr int stride(int count) { return up(count, 4) % 8 ? up(count, 4) : up(count, 4) + 4; }

constexpr int ROWS = up(B, 4), QUADS = ROWS / 4;          // samples, and how many tiles they make
constexpr int INPUTS = up(D + BIAS, 4), SX = stride(INPUTS);
constexpr int OUTPUTS = up(C, 4), SE = stride(OUTPUTS), SY = C;

__device__ __forceinline__ Four four(const T* p) { return *reinterpret_cast<const Four*>(p); }

// Philox4x32-10, as in _random.py: the rows of a step's batch are a function of (seed, step).
__device__ int drawn(long long seed, long long step, int place, int samples) {
    word c0 = place / 4, c1 = (word)step, c2 = (word)(step >> 32), c3 = STREAM;
    word k0 = (word)seed, k1 = (word)(seed >> 32);
    #pragma unroll
    for (int round = 0; round < 10; round++) {
        word low = c0 * 0xD2511F53u, low_high = __umulhi(c0, 0xD2511F53u);
        word high = c2 * 0xCD9E8D57u, high_high = __umulhi(c2, 0xCD9E8D57u);
        c0 = high_high ^ c1 ^ k0; c1 = high; c2 = low_high ^ c3 ^ k1; c3 = low;
        k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
    }
    word bits = place % 4 == 0 ? c0 : place % 4 == 1 ? c1 : place % 4 == 2 ? c2 : c3;
    return (int)__umulhi(bits, (word)samples);
}

// Rows of `wide` numbers from global into shared memory, by the copy engine: bytes that a row's start is aligned to.
template <int WIDE, int STRIDE> __device__ void fetch(T* into, const T* from, const int* rows) {
    constexpr int BYTES = WIDE * sizeof(T) % 16 == 0 && STRIDE * sizeof(T) % 16 == 0 ? 16
                        : WIDE * sizeof(T) % 8 == 0 && STRIDE * sizeof(T) % 8 == 0 ? 8 : 4;
    constexpr int EACH = WIDE * sizeof(T) / BYTES;
    for (int item = threadIdx.x; item < B * EACH; item += blockDim.x) {
        int row = item / EACH, part = item % EACH;
        word to = (word)__cvta_generic_to_shared(reinterpret_cast<char*>(into + row * STRIDE) + part * BYTES);
        const char* at = reinterpret_cast<const char*>(from + (long long)rows[row] * WIDE) + part * BYTES;
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"(to), "l"(at), "n"(BYTES));
    }
}

extern "C" __global__ void __launch_bounds__(256) resident(
    const T* inputs, const T* targets, const long long* set_of, const long long* teacher_of, const long long* seeds,
    const T* rate, T* weight, T* bias, T* weight2, T* bias2, T* losses,
    int n, int first_low, int first_high, int count, int samples, double below
) {
    extern __shared__ __align__(16) char room[];
    const int net = blockIdx.x, tid = threadIdx.x, threads = blockDim.x;
    const int NP = up(n, 4), NK = NP + 4 * BIAS, SH = stride(NK), KT = NP / 4, CT = OUTPUTS / 4;
    const T slope = (T)below, scale = -rate[net] / B;
    const long long first = ((long long)first_high << 32) | (word)first_low, seed = seeds[net];
    T* W = reinterpret_cast<T*>(room);
    T* V = W + NP * SX;
    T* H = V + OUTPUTS * SH;
    T* G = H + ROWS * SH;
    T* E = G + ROWS * SH;
    T* X = E + ROWS * SE;              // two
    T* Y = X + 2 * ROWS * SX;          // two
    T* partial = Y + 2 * up(ROWS * SY, 4);
    int* rows = reinterpret_cast<int*>(partial + 32);  // two batches

    const int all = (int)(reinterpret_cast<T*>(rows) - W);
    for (int i = tid; i < all; i += threads) W[i] = 0;
    __syncthreads();
    T* own_weight = weight + (long long)net * up(n * D, ALIGN);
    T* own_weight2 = weight2 + (long long)net * up(n * C, ALIGN);
    for (int i = tid; i < n * D; i += threads) W[i / D * SX + i % D] = own_weight[i];
    for (int i = tid; i < n * C; i += threads) V[i / n * SH + i % n] = own_weight2[i];
    if (BIAS) {
        bias += (long long)net * up(n, ALIGN); bias2 += (long long)net * up(C, ALIGN);
        for (int i = tid; i < n; i += threads) W[i * SX + D] = bias[i];
        for (int i = tid; i < C; i += threads) V[i * SH + NP] = bias2[i];
        for (int i = tid; i < B; i += threads) X[i * SX + D] = X[ROWS * SX + i * SX + D] = 1;
        for (int i = tid; i < ROWS; i += threads) H[i * SH + NP] = 1;
    }
    inputs += set_of[net] * (long long)samples * D;
    targets += teacher_of[net] * (long long)samples * C;
    losses += (long long)net * count;
    for (int i = tid; i < 2 * B; i += threads) rows[i] = drawn(seed, first + i / B, i % B, samples);
    __syncthreads();
    fetch<D, SX>(X, inputs, rows);
    fetch<C, SY>(Y, targets, rows);
    asm volatile("cp.async.wait_all;");
    __syncthreads();

    for (int step = 0; step < count; step++) {
        T* x = X + (step & 1) * ROWS * SX;
        T* y = Y + (step & 1) * up(ROWS * SY, 4);
        if (step + 1 < count) {
            const int* next = rows + (~step & 1) * B;
            fetch<D, SX>(X + (~step & 1) * ROWS * SX, inputs, next);
            fetch<C, SY>(Y + (~step & 1) * up(ROWS * SY, 4), targets, next);
        }
        for (int i = tid; i < B; i += threads) rows[(step & 1) * B + i] = drawn(seed, first + step + 2, i, samples);

        // H = σ(X Wᵀ)
        for (int item = tid; item < KT * QUADS; item += threads) {
            const int tb = item % QUADS, tk = item / QUADS;
            T z[4][4] = {};
            #pragma unroll 2
            for (int i = 0; i < INPUTS; i += 4) {
                Four w[4], s[4];
                #pragma unroll
                for (int j = 0; j < 4; j++) { w[j] = four(W + (tk + j * KT) * SX + i); s[j] = four(x + (tb + j * QUADS) * SX + i); }
                #pragma unroll
                for (int q = 0; q < 4; q++)
                    #pragma unroll
                    for (int a = 0; a < 4; a++)
                        #pragma unroll
                        for (int b = 0; b < 4; b++) z[a][b] += w[a].v[q] * s[b].v[q];
            }
            #pragma unroll
            for (int a = 0; a < 4; a++)
                #pragma unroll
                for (int b = 0; b < 4; b++) {
                    const int at = (tb + b * QUADS) * SH + tk + a * KT;
                    const bool on = !(z[a][b] < 0);
                    H[at] = on ? z[a][b] : slope * z[a][b];
                    G[at] = on ? (T)1 : slope;
                }
        }
        __syncthreads();

        // E = (H Vᵀ − Y)·scale; four neighbours each add up a quarter of the nodes, then share out the sums
        T square = 0;
        const int outputs = 4 * QUADS * CT;
        for (int base = tid & ~31; base < outputs; base += threads) {
            const int item = min(base + (tid & 31), outputs - 1);
            const int part = item % 4, tb = item / 4 % QUADS, tc = item / (4 * QUADS);
            T o[4][4] = {};
            #pragma unroll 2
            for (int k = 4 * part; k < NK; k += 16) {
                Four v[4], h[4];
                #pragma unroll
                for (int j = 0; j < 4; j++) { v[j] = four(V + (tc + j * CT) * SH + k); h[j] = four(H + (tb + j * QUADS) * SH + k); }
                #pragma unroll
                for (int q = 0; q < 4; q++)
                    #pragma unroll
                    for (int a = 0; a < 4; a++)
                        #pragma unroll
                        for (int b = 0; b < 4; b++) o[a][b] += v[a].v[q] * h[b].v[q];
            }
            const bool second = part & 2, odd = part & 1;
            #pragma unroll
            for (int b = 0; b < 4; b++) {
                T low = (second ? o[2][b] : o[0][b]) + __shfl_xor_sync(~0u, second ? o[0][b] : o[2][b], 2);
                T high = (second ? o[3][b] : o[1][b]) + __shfl_xor_sync(~0u, second ? o[1][b] : o[3][b], 2);
                T sum = (odd ? high : low) + __shfl_xor_sync(~0u, odd ? low : high, 1);
                const int row = tb + b * QUADS, c = tc + part * CT;
                if (row < B && c < C && base + (tid & 31) < outputs) {
                    T residual = sum - y[row * SY + c];
                    E[row * SE + c] = residual * scale;
                    square += residual * residual;
                }
            }
        }
        #pragma unroll
        for (int far = 16; far; far /= 2) square += __shfl_xor_sync(~0u, square, far);
        if ((tid & 31) == 0) partial[tid / 32] = square;
        __syncthreads();

        // G = (E V) ∘ G
        for (int item = tid; item < KT * QUADS; item += threads) {
            const int tb = item % QUADS, tk = item / QUADS;
            T g[4][4] = {};
            #pragma unroll 2
            for (int c = 0; c < OUTPUTS; c += 4) {
                Four v[4], e[4];
                #pragma unroll
                for (int j = 0; j < 4; j++) { v[j] = four(V + (c + j) * SH + 4 * tk); e[j] = four(E + (tb + j * QUADS) * SE + c); }
                #pragma unroll
                for (int q = 0; q < 4; q++)
                    #pragma unroll
                    for (int a = 0; a < 4; a++)
                        #pragma unroll
                        for (int b = 0; b < 4; b++) g[a][b] += v[q].v[a] * e[b].v[q];
            }
            #pragma unroll
            for (int b = 0; b < 4; b++) {
                T* at = G + (tb + b * QUADS) * SH + 4 * tk;
                Four gate = four(at);
                #pragma unroll
                for (int a = 0; a < 4; a++) gate.v[a] *= g[a][b];
                *reinterpret_cast<Four*>(at) = gate;
            }
        }
        if (tid == 0) {
            T sum = 0;
            for (int i = 0; i < threads / 32; i++) sum += partial[i];
            losses[step] = sum / (B * C);
        }
        __syncthreads();

        // V += Eᵀ H and W += Gᵀ X: sums over the batch, added to the weights where they lie
        auto add = [&](T* into, int width, const T* left, int left_stride, const T* right, int right_stride, int across, int items) {
            for (int item = tid; item < items; item += threads) {
                const int column = 4 * (item % across), row = 4 * (item / across);
                T sum[4][4] = {};
                #pragma unroll
                for (int b = 0; b < B; b++) {
                    Four l = four(left + b * left_stride + row), r = four(right + b * right_stride + column);
                    #pragma unroll
                    for (int i = 0; i < 4; i++)
                        #pragma unroll
                        for (int j = 0; j < 4; j++) sum[i][j] += l.v[i] * r.v[j];
                }
                #pragma unroll
                for (int i = 0; i < 4; i++) {
                    T* at = into + (row + i) * width + column;
                    Four now = four(at);
                    #pragma unroll
                    for (int j = 0; j < 4; j++) now.v[j] += sum[i][j];
                    *reinterpret_cast<Four*>(at) = now;
                }
            }
        };
        add(W, SX, G, SH, x, SX, INPUTS / 4, KT * (INPUTS / 4));
        add(V, SH, E, SE, H, SH, NK / 4, (NK / 4) * CT);
        asm volatile("cp.async.wait_all;");
        __syncthreads();
    }

    for (int i = tid; i < n * D; i += threads) own_weight[i] = W[i / D * SX + i % D];
    for (int i = tid; i < n * C; i += threads) own_weight2[i] = V[i / n * SH + i % n];
    if (BIAS) {
        for (int i = tid; i < n; i += threads) bias[i] = W[i * SX + D];
        for (int i = tid; i < C; i += threads) bias2[i] = V[i * SH + NP];
    }
}
