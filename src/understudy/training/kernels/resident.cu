// Plain SGD of two-layer networks, one thread block per network: its weights stay in shared memory for all steps of a
// launch. A thread computes tiles of TILE × TILE numbers. Compiled after tiles.cu for number type T, D inputs, N nodes, C
// outputs and batches of B samples.
//
//   W[k][i]  first weights, V[c][k] second weights; biases are an additional column, multiplied by 1
//   X[b][i]  inputs of the batch, Y[b][c] targets: two of each, the next being copied while one is used
//   H[b][k]  activations, G[b][k] gates and then gradients of the pre-activations, E[b][c] scaled residuals

constexpr int PARTS = 4;                                  // lanes that share a sum, eight lanes apart
constexpr int ROWS = up(B, TILE), TILES = ROWS / TILE;    // samples, padded, and the number of their tiles
constexpr int INPUTS = up(D + BIAS, TILE), SX = stride(INPUTS);
constexpr int OUTPUTS = up(C, TILE), SE = stride(OUTPUTS), SY = C;
constexpr int NP = up(N, TILE), NK = NP + TILE * BIAS, SH = stride(NK), KT = NP / TILE;

// Draws a row of a step's batch as a function of (seed, step), by Philox4x32-10 as in _random.py.
__device__ int draw(long long seed, long long step, int place, int samples) {
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

// Copies the rows of a batch to shared memory.
template <int WIDE, int STRIDE> __device__ void fetch(T* into, const T* from, const int* rows) {
    constexpr int BYTES = COPY_BYTES<WIDE, STRIDE>, EACH = WIDE * sizeof(T) / BYTES, NUMBERS = BYTES / sizeof(T);
    for (int item = threadIdx.x; item < B * EACH; item += blockDim.x) {
        const int row = item / EACH, part = item % EACH * NUMBERS;
        copy_async<BYTES>(into + row * STRIDE + part, from + (long long)rows[row] * WIDE + part);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) resident(
    const T* inputs, const T* targets, const long long* set_of, const long long* teacher_of, const long long* seeds,
    const T* rate, T* weight, T* bias, T* weight2, T* bias2, T* losses,
    int first_low, int first_high, int count, int samples, double below
) {
    extern __shared__ __align__(16) char room[];
    const int net = blockIdx.x, tid = threadIdx.x, threads = blockDim.x;
    const int lane = tid & 31;
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
    int* rows = reinterpret_cast<int*>(partial + 32);  // rows of two batches

    const int all = (int)(reinterpret_cast<T*>(rows) - W);
    for (int i = tid; i < all; i += threads) W[i] = 0;
    __syncthreads();
    T* own_weight = weight + (long long)net * up(N * D, ALIGN);
    T* own_weight2 = weight2 + (long long)net * up(N * C, ALIGN);
    for (int i = tid; i < N * D; i += threads) W[i / D * SX + i % D] = own_weight[i];
    for (int i = tid; i < N * C; i += threads) V[i / N * SH + i % N] = own_weight2[i];
    if (BIAS) {
        bias += (long long)net * up(N, ALIGN); bias2 += (long long)net * up(C, ALIGN);
        for (int i = tid; i < N; i += threads) W[i * SX + D] = bias[i];
        for (int i = tid; i < C; i += threads) V[i * SH + NP] = bias2[i];
        for (int i = tid; i < B; i += threads) X[i * SX + D] = X[ROWS * SX + i * SX + D] = 1;
        for (int i = tid; i < ROWS; i += threads) H[i * SH + NP] = 1;
    }
    inputs += set_of[net] * (long long)samples * D;
    targets += teacher_of[net] * (long long)samples * C;
    losses += (long long)net * count;
    for (int i = tid; i < 2 * B; i += threads) rows[i] = draw(seed, first + i / B, i % B, samples);
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
        for (int i = tid; i < B; i += threads) rows[(step & 1) * B + i] = draw(seed, first + step + 2, i, samples);

        // H = σ(X Wᵀ)
        for (int base = tid & ~31; base < KT * TILES * PARTS; base += threads) {
            const int part = lane / 8, place = base / PARTS + lane % 8, tile = min(place, KT * TILES - 1);
            const int tb = tile % TILES, tk = tile / TILES;
            T z[TILE][TILE] = {};
            dot(z, W + tk * SX, KT * SX, x + tb * SX, TILES * SX, 4 * part, INPUTS, 4 * PARTS);
            share<TILE, PARTS>(z, part);
            if (place < KT * TILES)
                #pragma unroll
                for (int i = 0; i < TILE / PARTS; i++)
                    #pragma unroll
                    for (int j = 0; j < TILE; j++) {
                        const int at = (tb + j * TILES) * SH + tk + (i + part * (TILE / PARTS)) * KT;
                        const bool on = !(z[i][j] < 0);
                        H[at] = on ? z[i][j] : slope * z[i][j];
                        G[at] = on ? (T)1 : slope;
                    }
        }
        __syncthreads();

        // E = (H Vᵀ − Y)·scale
        constexpr int QUADS = ROWS / 4, CT = OUTPUTS / TILE;
        T square = 0;
        for (int base = tid & ~31; base < CT * QUADS * TILE; base += threads) {
            const int part = lane / (32 / TILE), place = base / TILE + lane % (32 / TILE);
            const int tile = min(place, CT * QUADS - 1), tb = tile % QUADS, tc = tile / QUADS;
            T o[TILE][4] = {};
            dot(o, V + tc * SH, CT * SH, H + tb * SH, QUADS * SH, 4 * part, NK, 4 * TILE);
            share<TILE, TILE>(o, part);
            #pragma unroll
            for (int j = 0; j < 4; j++) {
                const int row = tb + j * QUADS, c = tc + part * CT;
                if (row < B && c < C && place < CT * QUADS) {
                    T residual = o[0][j] - y[row * SY + c];
                    E[row * SE + c] = residual * scale;
                    square += residual * residual;
                }
            }
        }
        #pragma unroll
        for (int far = 16; far; far /= 2) square += __shfl_xor_sync(~0u, square, far);
        if (lane == 0) partial[tid / 32] = square;
        __syncthreads();

        // G = (E V) ∘ G
        for (int base = tid & ~31; base < KT * TILES * PARTS; base += threads) {
            const int part = lane / 8, place = base / PARTS + lane % 8, tile = min(place, KT * TILES - 1);
            const int tb = tile % TILES, tk = tile / TILES;
            T g[TILE][TILE] = {};
            #pragma unroll 1
            for (int c = 4 * part; c < OUTPUTS; c += 4 * PARTS) {
                Four e[TILE];
                #pragma unroll
                for (int j = 0; j < TILE; j++) e[j] = four(E + (tb + j * TILES) * SE + c);
                #pragma unroll
                for (int q = 0; q < 4; q++)
                    #pragma unroll
                    for (int quad = 0; quad < TILE / 4; quad++) {
                        Four v = four(V + (c + q) * SH + 4 * (tk + quad * KT));
                        #pragma unroll
                        for (int i = 0; i < 4; i++)
                            #pragma unroll
                            for (int j = 0; j < TILE; j++) g[4 * quad + i][j] += v.v[i] * e[j].v[q];
                    }
            }
            share<TILE, PARTS>(g, part);
            if (place < KT * TILES)
                #pragma unroll
                for (int i = 0; i < TILE / PARTS; i++)
                    #pragma unroll
                    for (int j = 0; j < TILE; j++) {
                        const int row = i + part * (TILE / PARTS);
                        G[(tb + j * TILES) * SH + 4 * (tk + row / 4 * KT) + row % 4] *= g[i][j];
                    }
        }
        if (tid == 0) {
            T sum = 0;
            for (int i = 0; i < threads / 32; i++) sum += partial[i];
            losses[step] = sum / (B * C);
        }
        __syncthreads();

        // W += Gᵀ X and V += Eᵀ H: sums over the batch, added to the weights in place
        constexpr int XT = INPUTS / TILE;
        constexpr int first_tiles = KT * XT, HT = NK / TILE;
        for (int item = tid; item < first_tiles + CT * HT; item += threads) {
            const bool low = item < first_tiles;
            const int tile = low ? item : item - first_tiles, across = low ? XT : HT, wide = low ? SX : SH;
            const int column = 4 * (tile % across), row = 4 * (tile / across), rows_apart = low ? 4 * KT : 4 * CT;
            const T* left = (low ? G : E) + row;
            const T* right = (low ? x : H) + column;
            const int left_stride = low ? SH : SE;
            T* into = (low ? W : V) + row * wide + column;
            T sum[TILE][TILE] = {};
            #pragma unroll 4
            for (int b = 0; b < B; b++) {
                Four l[TILE / 4], r[TILE / 4];
                #pragma unroll
                for (int q = 0; q < TILE / 4; q++) {
                    l[q] = four(left + b * left_stride + q * rows_apart);
                    r[q] = four(right + b * wide + q * 4 * across);
                }
                #pragma unroll
                for (int i = 0; i < TILE; i++)
                    #pragma unroll
                    for (int j = 0; j < TILE; j++) sum[i][j] += l[i / 4].v[i % 4] * r[j / 4].v[j % 4];
            }
            #pragma unroll
            for (int i = 0; i < TILE; i++)
                #pragma unroll
                for (int q = 0; q < TILE / 4; q++) {
                    T* at = into + (i / 4 * rows_apart + i % 4) * wide + q * 4 * across;
                    Four now = four(at);
                    #pragma unroll
                    for (int j = 0; j < 4; j++) now.v[j] += sum[i][4 * q + j];
                    put(at, now);
                }
        }
        asm volatile("cp.async.wait_all;");
        __syncthreads();
    }

    for (int i = tid; i < N * D; i += threads) own_weight[i] = W[i / D * SX + i % D];
    for (int i = tid; i < N * C; i += threads) own_weight2[i] = V[i / N * SH + i % N];
    if (BIAS) {
        for (int i = tid; i < N; i += threads) bias[i] = W[i * SX + D];
        for (int i = tid; i < C; i += threads) bias2[i] = V[i * SH + NP];
    }
}
