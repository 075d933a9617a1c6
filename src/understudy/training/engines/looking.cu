// A look at two-layer networks on many samples: squared errors, and what correlations with the teacher's nodes are made
// of. A thread block takes one network through one slab of the samples, SAMPLES at a time, with the weights in shared
// memory. Compiled, after tiles.cu, for one number type T, D inputs, C outputs; the nodes n and the teacher's nodes M are free.
//
//   W[k][i], V[c][k]  weights, biases as one more column, which meets a 1
//   X[b][i]  inputs, S[b][j]  centred activations of the teacher, and a 1
//   H[b][k]  activations, R[j][k]  sums over the samples of S[b][j]·(H[b][k] − P[k]), and in the last row of squares
//   P[k]  activations at the first sample: moments around them do not cancel, however large the mean

typedef unsigned int word;
constexpr int SAMPLES = 32;
constexpr int INPUTS = up(D + BIAS, 4), SX = stride(INPUTS), OUTPUTS = up(C, TILE);

extern "C" __global__ void __launch_bounds__(256) looking(
    const T* inputs, const T* targets, const T* teacher, const long long* set_of, const long long* teacher_of,
    const T* weight, const T* bias, const T* weight2, const T* bias2, T* sums, T* pivots, double* errors,
    int n, int M, int samples, int slab, double below
) {
    extern __shared__ __align__(16) char room[];
    const int net = blockIdx.y, tid = threadIdx.x, threads = blockDim.x, lane = tid & 31;
    const int NP = up(n, TILE), NK = NP + TILE * BIAS, SH = stride(NK), KT = NP / TILE;
    const int TEACHERS = up(M + 1, 4), SS = stride(TEACHERS), SUMS = M + 2;
    const int from = blockIdx.x * slab, until = min(from + slab, samples);
    const T slope = (T)below;
    T* W = reinterpret_cast<T*>(room);
    T* V = W + NP * SX;
    T* H = V + OUTPUTS * SH;
    T* R = H + SAMPLES * SH;
    T* P = R + (TEACHERS + 4) * SH;
    T* X = P + SH;
    T* S = X + SAMPLES * SX;
    double* partial = reinterpret_cast<double*>(S + SAMPLES * SS);

    for (int i = tid; i < (int)(S + SAMPLES * SS - W); i += threads) W[i] = 0;
    __syncthreads();
    for (int i = tid; i < n * D; i += threads) W[i / D * SX + i % D] = weight[(long long)net * n * D + i];
    for (int i = tid; i < n * C; i += threads) V[i / n * SH + i % n] = weight2[(long long)net * n * C + i];
    if (BIAS) {
        for (int i = tid; i < n; i += threads) W[i * SX + D] = bias[net * n + i];
        for (int i = tid; i < C; i += threads) V[i * SH + NP] = bias2[net * C + i];
        for (int i = tid; i < SAMPLES; i += threads) { X[i * SX + D] = 1; H[i * SH + NP] = 1; }
    }
    inputs += set_of[net] * (long long)samples * D;
    targets += teacher_of[net] * (long long)samples * C;
    teacher += teacher_of[net] * (long long)samples * M;
    __syncthreads();
    for (int k = tid; k < n; k += threads) {
        T z = BIAS ? W[k * SX + D] : 0;
        for (int i = 0; i < D; i++) z += W[k * SX + i] * inputs[i];
        P[k] = z < 0 ? slope * z : z;
        if (blockIdx.x == 0) pivots[net * n + k] = P[k];
    }

    double error = 0;
    for (int at = from; at < until; at += SAMPLES) {
        const int here = min(SAMPLES, until - at);
        for (int i = tid; i < SAMPLES * D; i += threads)
            X[i / D * SX + i % D] = i / D < here ? inputs[(long long)at * D + i] : (T)0;
        for (int i = tid; i < SAMPLES * (M + 1); i += threads) {
            const int b = i / (M + 1), j = i % (M + 1);
            S[b * SS + j] = b >= here ? (T)0 : j == M ? (T)1 : teacher[(long long)(at + b) * M + j];
        }
        __syncthreads();

        // H = σ(X Wᵀ)
        constexpr int TILES = SAMPLES / TILE;
        for (int base = tid & ~31; base < KT * TILES * 2; base += threads) {
            const int part = lane / 16, place = base / 2 + lane % 16, tile = min(place, KT * TILES - 1);
            const int tb = tile % TILES, tk = tile / TILES;
            T z[TILE][TILE] = {};
            dot(z, W + tk * SX, KT * SX, X + tb * SX, TILES * SX, 4 * part, INPUTS, 8);
            share<TILE, 2>(z, part);
            if (place < KT * TILES)
                #pragma unroll
                for (int i = 0; i < TILE / 2; i++)
                    #pragma unroll
                    for (int j = 0; j < TILE; j++) {
                        const T value = z[i][j];
                        H[(tb + j * TILES) * SH + tk + (i + part * TILE / 2) * KT] = value < 0 ? slope * value : value;
                    }
        }
        __syncthreads();

        // ‖H Vᵀ − Y‖²
        constexpr int QUADS = SAMPLES / 4, CT = OUTPUTS / TILE;
        for (int base = tid & ~31; base < CT * QUADS * 4; base += threads) {
            const int part = lane / 8, place = base / 4 + lane % 8, tile = min(place, CT * QUADS - 1);
            const int tb = tile % QUADS, tc = tile / QUADS;
            T o[TILE][4] = {};
            dot(o, V + tc * SH, CT * SH, H + tb * SH, QUADS * SH, 4 * part, NK, 16);
            share<TILE, 4>(o, part);
            #pragma unroll
            for (int i = 0; i < TILE / 4; i++)
                #pragma unroll
                for (int j = 0; j < 4; j++) {
                    const int row = tb + j * QUADS, c = tc + (i + part * TILE / 4) * CT;
                    if (row < here && c < C && place < CT * QUADS) {
                        const T residual = o[i][j] - targets[(long long)(at + row) * C + c];
                        error += (double)(residual * residual);
                    }
                }
        }

        // R += Sᵀ (H − P), and the squares below
        for (int item = tid; item < TEACHERS / 4 * (NP / 4); item += threads) {
            const int column = 4 * (item % (NP / 4)), row = 4 * (item / (NP / 4));
            const Four p = four(P + column);
            T sum[4][4] = {};
            #pragma unroll 4
            for (int b = 0; b < SAMPLES; b++) {
                const Four s = four(S + b * SS + row), h = four(H + b * SH + column);
                #pragma unroll
                for (int j = 0; j < 4; j++) {
                    const T moved = h.v[j] - p.v[j];
                    #pragma unroll
                    for (int i = 0; i < 4; i++) sum[i][j] += s.v[i] * moved;
                }
            }
            #pragma unroll
            for (int i = 0; i < 4; i++)
                #pragma unroll
                for (int j = 0; j < 4; j++) R[(row + i) * SH + column + j] += sum[i][j];
        }
        for (int k = tid; k < n; k += threads) {
            T sum = 0;
            for (int b = 0; b < here; b++) { const T moved = H[b * SH + k] - P[k]; sum += moved * moved; }
            R[TEACHERS * SH + k] += sum;
        }
        __syncthreads();
    }

    sums += ((long long)net * gridDim.x + blockIdx.x) * SUMS * n;
    for (int i = tid; i < SUMS * n; i += threads) {
        const int j = i / n, k = i % n;
        sums[i] = R[(j == M + 1 ? TEACHERS : j) * SH + k];
    }
    #pragma unroll
    for (int far = 16; far; far /= 2) error += __shfl_xor_sync(~0u, error, far);
    if (lane == 0) partial[tid / 32] = error;
    __syncthreads();
    if (tid == 0) {
        double sum = 0;
        for (int i = 0; i < threads / 32; i++) sum += partial[i];
        errors[net * gridDim.x + blockIdx.x] = sum;
    }
}
