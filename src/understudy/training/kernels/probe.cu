// Fused probe of two-layer networks on many samples: squared errors, and the moments from which correlations with the
// teacher's nodes are computed. A thread block processes one network on one slab of the samples, SAMPLES at a time, with
// the weights in shared memory. Compiled after tiles.cu for number type T, D inputs, N nodes, C outputs, M teacher nodes.
//
// Products are cut into tiles of 16 × 8, which are distributed over the warps. In float32 they use the tensor cores: each
// number is split into two of 11 bits, and of their four products all but the smallest are added ("3xTF32"). This keeps
// about 21 of float32's 24 bits, which is enough for measurements; training does not use the results.
//
//   P[k]     activations at the first sample; moments around them avoid cancellation, however large the mean
//   W[k][i], V[c][k]  weights; biases are an additional column, multiplied by 1; the bias of V includes V P
//   X[b][i]  inputs, Y[b][c] targets, S[b][j] centred activations of the teacher and an additional column of ones
//   H[b][k]  activations minus P[k]
//   R[j][k]  sums over samples of S[b][j]·H[b][k], Q[k] of H[b][k]²

constexpr int SAMPLES = 16 * DOWN;
constexpr int INPUTS = up(D + BIAS, 8), SX = INPUTS + 4, OUTPUTS = up(C, 8);
constexpr int NP = up(N, 8), NK = NP + 8, SH = NK + 4, MP = up(M + 1, 16), SS = up(M + 1, 8) + 4;

// Copies contiguous rows to shared memory; of `rows`, those from `here` on are set to zero.
template <int WIDE, int STRIDE> __device__ void copy(T* into, const T* from, int here, int rows) {
    constexpr int BYTES = COPY_BYTES<WIDE, STRIDE>, EACH = WIDE * sizeof(T) / BYTES, NUMBERS = BYTES / sizeof(T);
    for (int item = threadIdx.x; item < rows * EACH; item += blockDim.x) {
        const int row = item / EACH, part = item % EACH * NUMBERS;
        if (row < here) copy_async<BYTES>(into + row * STRIDE + part, from + (long long)row * WIDE + part);
        else for (int i = 0; i < NUMBERS; i++) into[row * STRIDE + part + i] = 0;
    }
}

__device__ __forceinline__ void mma(float (&sum)[4], const word (&a)[4], const word (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void halve(float x, word& high, word& low) {
    high = __float_as_uint(x) & 0xFFFFE000u;
    low = __float_as_uint(x - __uint_as_float(high));
}

// Loads 16 × 8 numbers, or two blocks of 8 × 8, in the layout of mma by one instruction: lane l passes the address of row
// l of four blocks of 8 × 4 numbers; each row is contiguous.
__device__ __forceinline__ void gather(word (&block)[4], const float* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(block[0]), "=r"(block[1]), "=r"(block[2]), "=r"(block[3]) : "r"((word)__cvta_generic_to_shared(row))
        : "memory");
}

// Computes DOWN × ACROSS tiles: sum[i][j] holds the products of rows a[m] and columns b[n] of tile (i, j), both of length
// K. A lane holds the numbers at (lane / 4, lane % 4 · 2 + 0, 1) and those eight rows below; at[j] is the first column of
// tile j. Contiguous rows and columns (ak = bk = 1) are read in blocks.
template <int DOWN, int ACROSS> __device__ __forceinline__ void tiles(
    float (&sum)[DOWN][ACROSS][4], const float* a, int am, int ak, const float* b, int bk, int bn,
    const int (&at)[ACROSS], int K
) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, eight = lane % 8, half = lane / 8 % 2;
    const bool along = ak == 1 && bk == 1;
    float rest[DOWN][ACROSS][4] = {};
    #pragma unroll 4
    for (int k = 0; k < K; k += 8) {
        word read[4], high[DOWN][4], low[DOWN][4];
        #pragma unroll
        for (int i = 0; i < DOWN; i++) {
            if (along) gather(read, a + (16 * i + eight + 8 * half) * am + k + lane / 16 * 4);
            else
                #pragma unroll
                for (int e = 0; e < 4; e++)
                    read[e] = __float_as_uint(a[(k + t + e / 2 * 4) * ak + (16 * i + g + e % 2 * 8) * am]);
            #pragma unroll
            for (int e = 0; e < 4; e++) halve(__uint_as_float(read[e]), high[i][e], low[i][e]);
        }
        #pragma unroll
        for (int j = 0; j < ACROSS; j++) {
            word bh[2], bl[2];
            if (!along)
                #pragma unroll
                for (int e = 0; e < 2; e++)
                    read[j % 2 * 2 + e] = __float_as_uint(b[(k + t + 4 * e) * bk + (at[j] + g) * bn]);
            else if (j % 2 == 0)
                gather(read, b + ((lane < 16 ? at[j] : at[(j + 1) % ACROSS]) + eight) * bn + k + 4 * half);
            #pragma unroll
            for (int e = 0; e < 2; e++) halve(__uint_as_float(read[j % 2 * 2 + e]), bh[e], bl[e]);
            #pragma unroll
            for (int i = 0; i < DOWN; i++) {
                mma(rest[i][j], low[i], bh);
                mma(rest[i][j], high[i], bl);
                mma(sum[i][j], high[i], bh);
            }
        }
    }
    #pragma unroll
    for (int i = 0; i < DOWN; i++)
        #pragma unroll
        for (int j = 0; j < ACROSS; j++)
            #pragma unroll
            for (int e = 0; e < 4; e++) sum[i][j][e] += rest[i][j][e];
}

// Computes the tiles in double precision, by plain multiplications.
template <int DOWN, int ACROSS> __device__ __forceinline__ void tiles(
    double (&sum)[DOWN][ACROSS][4], const double* a, int am, int ak, const double* b, int bk, int bn,
    const int (&at)[ACROSS], int K
) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (int k = 0; k < K; k++)
        #pragma unroll
        for (int i = 0; i < DOWN; i++)
            #pragma unroll
            for (int j = 0; j < ACROSS; j++)
                #pragma unroll
                for (int e = 0; e < 4; e++)
                    sum[i][j][e] += a[(16 * i + g + e / 2 * 8) * am + k * ak] * b[k * bk + (at[j] + 2 * t + e % 2) * bn];
}

// Calls done(m, n, sums, j) with the sums Σ_k a[m][k]·b[k][n] of rows m = row + 16·i + lane / 4 + 0, 8 and columns n =
// column + lane % 4 · 2 + 0, 1 of a warp's tiles. The number of rows is a multiple of 16·DOWN; columns are rounded up to a
// multiple of 8, so `done` must tolerate columns beyond the last. Items of several products are distributed over the warps
// in turn: `before` is the number of items of the preceding products. Returns the number including this product.
template <int DOWN, int ACROSS, class Done> __device__ __forceinline__ int product(
    int before, int rows, int columns, int K, const T* a, int am, int ak, const T* b, int bk, int bn, Done done
) {
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32, warp = threadIdx.x / 32;
    const int groups = (columns + 8 * ACROSS - 1) / (8 * ACROSS), items = rows / (16 * DOWN) * groups;
    for (int item = (warp - before % warps + warps) % warps; item < items; item += warps) {
        const int row = item / groups * 16 * DOWN, column = item % groups * 8 * ACROSS;
        T sum[DOWN][ACROSS][4] = {};
        int at[ACROSS];
        #pragma unroll
        for (int j = 0; j < ACROSS; j++) at[j] = column + 8 * j < columns ? column + 8 * j : column;
        tiles<DOWN, ACROSS>(sum, a + row * am, am, ak, b, bk, bn, at, K);
        #pragma unroll
        for (int j = 0; j < ACROSS; j++)
            if (column + 8 * j < columns) done(row + lane / 4, column + 8 * j + 2 * (lane % 4), sum, j);
    }
    return before + items;
}

extern "C" __global__ void __launch_bounds__(THREADS) probe(
    const T* inputs, const T* targets, const T* teacher, const long long* set_of, const long long* teacher_of,
    const T* weight, const T* bias, const T* weight2, const T* bias2, T* sums, T* pivots, double* errors,
    int samples, int slab, double below
) {
    extern __shared__ __align__(16) char room[];
    const int net = blockIdx.y, tid = threadIdx.x, threads = blockDim.x, lane = tid & 31;
    const int from = blockIdx.x * slab, until = min(from + slab, samples);
    const T slope = (T)below;
    T* W = reinterpret_cast<T*>(room);
    T* V = W + NP * SX;
    T* H = V + OUTPUTS * SH;
    T* R = H + SAMPLES * SH;
    T* P = R + (M + 1) * SH;
    T* Q = P + SH;
    T* X = Q + SH;
    T* S = X + SAMPLES * SX;
    T* Y = S + SAMPLES * SS;
    T* end = Y + up(SAMPLES * C, 4);
    double* partial = reinterpret_cast<double*>(end);

    for (int i = tid; i < (int)(end - W); i += threads) W[i] = 0;
    __syncthreads();
    inputs += set_of[net] * (long long)samples * D;
    targets += teacher_of[net] * (long long)samples * C;
    teacher += teacher_of[net] * (long long)samples * M;
    auto fetch = [&](int at) { copy<D, SX>(X, inputs + (long long)at * D, min(SAMPLES, until - at), SAMPLES); };
    fetch(from);
    for (int i = tid; i < N * D; i += threads) W[i / D * SX + i % D] = weight[(long long)net * N * D + i];
    for (int i = tid; i < N * C; i += threads) V[i / N * SH + i % N] = weight2[(long long)net * N * C + i];
    if (BIAS) {
        for (int i = tid; i < N; i += threads) W[i * SX + D] = bias[net * N + i];
        for (int i = tid; i < SAMPLES; i += threads) X[i * SX + D] = 1;
    }
    for (int i = tid; i < SAMPLES; i += threads) H[i * SH + NP] = 1;
    __syncthreads();
    for (int k = tid / 32; k < N; k += threads / 32) {
        T z = 0;
        for (int i = lane; i < D; i += 32) z += W[k * SX + i] * inputs[i];
        #pragma unroll
        for (int far = 16; far; far /= 2) z += __shfl_xor_sync(~0u, z, far);
        z += BIAS ? W[k * SX + D] : 0;
        if (lane == 0) {
            P[k] = z < 0 ? slope * z : z;
            if (blockIdx.x == 0) pivots[net * N + k] = P[k];
        }
    }
    __syncthreads();
    for (int c = tid / 32; c < C; c += threads / 32) {
        T sum = 0;
        for (int k = lane; k < N; k += 32) sum += V[c * SH + k] * P[k];
        #pragma unroll
        for (int far = 16; far; far /= 2) sum += __shfl_xor_sync(~0u, sum, far);
        if (lane == 0) V[c * SH + NP] = sum + (BIAS ? bias2[net * C + c] : 0);
    }
    asm volatile("cp.async.wait_all;");
    __syncthreads();

    double error = 0;
    for (int at = from; at < until; at += SAMPLES) {
        const int here = min(SAMPLES, until - at);
        // Copied during the first product, needed after it.
        copy<C, C>(Y, targets + (long long)at * C, here, here);
        for (int i = tid; i < SAMPLES * M; i += threads) {
            if (i / M < here) copy_async<sizeof(T)>(S + i / M * SS + i % M, teacher + (long long)at * M + i);
            else S[i / M * SS + i % M] = 0;
        }
        for (int i = tid; i < SAMPLES; i += threads) S[i * SS + M] = i < here ? (T)1 : (T)0;

        using Hidden = T (&)[DOWN][ACROSS][4];
        product<DOWN, ACROSS>(0, SAMPLES, NP, INPUTS, X, SX, 1, W, 1, SX, [&](int b, int k, Hidden z, int j) {
            T square[2] = {};
            #pragma unroll
            for (int i = 0; i < DOWN; i++)
                #pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int row = b + 16 * i + e / 2 * 8, column = k + e % 2;
                    const T moved = (z[i][j][e] < 0 ? slope * z[i][j][e] : z[i][j][e]) - P[column];
                    H[row * SH + column] = moved;
                    if (row < here) square[e % 2] += moved * moved;
                }
            #pragma unroll
            for (int e = 0; e < 2; e++) {
                #pragma unroll
                for (int far = 16; far > 2; far /= 2) square[e] += __shfl_xor_sync(~0u, square[e], far);
                if (lane < 4) Q[k + e] += square[e];
            }
        });
        asm volatile("cp.async.wait_all;");
        __syncthreads();

        if (at + SAMPLES < until) fetch(at + SAMPLES);
        using Outputs = T (&)[DOWN][1][4];
        const int two = product<DOWN, 1>(0, SAMPLES, OUTPUTS, NK, H, SH, 1, V, 1, SH, [&](int b, int c, Outputs o, int j) {
            #pragma unroll
            for (int i = 0; i < DOWN; i++)
                #pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int row = b + 16 * i + e / 2 * 8, column = c + e % 2;
                    if (row < here && column < C) {
                        const T residual = o[i][j][e] - Y[row * C + column];
                        error += (double)(residual * residual);
                    }
                }
        });
        using Crossed = T (&)[1][ACROSS][4];
        product<1, ACROSS>(two, MP, NP, SAMPLES, S, 1, SS, H, SH, 1, [&](int m, int k, Crossed sum, int j) {
            #pragma unroll
            for (int e = 0; e < 4; e++)
                if (m + e / 2 * 8 <= M) R[(m + e / 2 * 8) * SH + k + e % 2] += sum[0][j][e];
        });
        asm volatile("cp.async.wait_all;");
        __syncthreads();
    }

    sums += ((long long)net * gridDim.x + blockIdx.x) * (M + 2) * N;
    for (int i = tid; i < (M + 2) * N; i += threads) sums[i] = i / N == M + 1 ? Q[i % N] : R[i / N * SH + i % N];
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
