// Matrix products in tiles, shared by the kernels. Every number read from shared memory is used in several products, or
// reading would take longer than multiplying; rows are padded so that eight consecutive rows touch all memory banks.

typedef unsigned int word;
struct alignas(16) Four { T v[4]; };

__host__ __device__ constexpr int up(int count, int unit) { return (count + unit - 1) / unit * unit; }
__host__ __device__ constexpr int stride(int count) { return up(count, 4) % 8 ? up(count, 4) : up(count, 4) + 4; }

__device__ __forceinline__ Four four(const T* p) { return *reinterpret_cast<const Four*>(p); }
__device__ __forceinline__ void put(T* p, Four f) { *reinterpret_cast<Four*>(p) = f; }

// Copies BYTES from global to shared memory asynchronously.
template <int BYTES> __device__ __forceinline__ void copy_async(void* to, const void* from) {
    const word place = (word)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"(place), "l"(from), "n"(BYTES));
}

// Largest copy size that rows of WIDE numbers, STRIDE apart, are aligned to.
template <int WIDE, int STRIDE> constexpr int COPY_BYTES =
    WIDE * sizeof(T) % 16 == 0 && STRIDE * sizeof(T) % 16 == 0 ? 16
    : WIDE * sizeof(T) % 8 == 0 && STRIDE * sizeof(T) % 8 == 0 ? 8 : 4;

// sum[i][j] += Σ left[i][k]·right[j][k] over the groups of four k of this lane; consecutive rows are a stride apart.
template <int I, int J> __device__ __forceinline__ void dot(
    T (&sum)[I][J], const T* left, int left_stride, const T* right, int right_stride, int from, int until, int by
) {
    #pragma unroll 1
    for (int k = from; k < until; k += by) {
        Four r[J];
        #pragma unroll
        for (int j = 0; j < J; j++) r[j] = four(right + j * right_stride + k);
        #pragma unroll
        for (int i = 0; i < I; i++) {
            Four l = four(left + i * left_stride + k);
            #pragma unroll
            for (int q = 0; q < 4; q++)
                #pragma unroll
                for (int j = 0; j < J; j++) sum[i][j] += l.v[q] * r[j].v[q];
        }
    }
}

// Adds up partial sums across lanes: of I rows, each lane keeps I / COUNT, from row part·I / COUNT on.
template <int I, int COUNT, int ALL, int J> __device__ __forceinline__ void share(T (&sum)[ALL][J], int part) {
    if constexpr (COUNT > 1) {
        const bool upper = part & COUNT / 2;
        #pragma unroll
        for (int i = 0; i < I / 2; i++)
            #pragma unroll
            for (int j = 0; j < J; j++) {
                T kept = upper ? sum[i + I / 2][j] : sum[i][j], given = upper ? sum[i][j] : sum[i + I / 2][j];
                sum[i][j] = kept + __shfl_xor_sync(~0u, given, 16 / (ALL / I));
            }
        share<I / 2, COUNT / 2, ALL, J>(sum, part);
    }
}
