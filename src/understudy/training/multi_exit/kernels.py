"""Triton kernels of the fused engine: convolutions of stacked networks with BatchNorm and ReLU around them.

All networks of a population are computed by one launch: the last axis of the grid is the network. Features lie as
(network, pixel, channel), with the pixels of all images of a batch one after the other, and rows of channels that begin
at multiples of 32 bytes. Convolutions store their outputs before BatchNorm, with the sums that BatchNorm needs; whoever
reads them applies max(scale · y + shift, 0) while loading. Sums over pixels are written per block and added in a fixed
order, so that equal inputs give equal bits.

Channels are read in groups of eight, so that loads are wide; those beyond the last one have weights of zero.
"""

import triton
import triton.language as tl

# One compiled kernel serves all layers of a scale: numbers of channels and pixels, and the addresses of parameters, are
# not compiled in. Strides between rows are: they are multiples of 16, which lets loads be wide.
_kernel = triton.jit(
    do_not_specialize=["C", "M", "P", "Q", "BLOCKS", "COUNT", "LENGTH"],
    do_not_specialize_on_alignment=[
        "scale", "shift", "mean", "rstd", "slope", "offset", "y_scale", "y_shift", "sums", "gamma", "beta",
        "running_mean", "running_var", "d_gamma", "d_beta", "out",
    ],
)  # fmt: skip


@triton.jit
def _whole(count):
    """The smallest multiple of eight that is at least `count`."""
    return tl.cdiv(count, 8) * 8


@triton.jit
def _rectified(y, scale, shift, c, C, here, IDENTITY: tl.constexpr):
    """Values of channels c after BatchNorm and ReLU; zero for pixels that are not `here` and channels from C on."""
    x = y.to(tl.float32)
    if not IDENTITY:
        a = tl.load(scale + c, mask=c < C, other=0.0)
        b = tl.load(shift + c, mask=c < C, other=0.0)
        x = tl.maximum(x * a[None, :] + b[None, :], 0.0)
    return tl.where(here[:, None] & (c < C)[None, :], x, 0.0)


@triton.jit
def _before_norm(g, z, scale, shift, slope, offset, p, P, row, m, M, D: tl.constexpr):
    """Gradient before BatchNorm and ReLU at the pixels p of the channels m; zero outside."""
    known = (p < P)[:, None] & (m < _whole(M))[None, :]
    at = p[:, None] * row + m[None, :]
    value = tl.load(z + at, mask=known, other=0.0).to(tl.float32)
    up = tl.load(g + at, mask=known, other=0.0).to(tl.float32)
    a, b = tl.load(scale + m, mask=m < M, other=0.0), tl.load(shift + m, mask=m < M, other=0.0)
    k, l = tl.load(slope + m, mask=m < M, other=0.0), tl.load(offset + m, mask=m < M, other=0.0)  # noqa: E741
    up = tl.where(value * a[None, :] + b[None, :] > 0.0, up, 0.0)
    down = a[None, :] * up + k[None, :] * value + l[None, :]
    return tl.where((p < P)[:, None], down, 0.0).to(D)


@triton.jit
def _store_sums(sums, net, block, total, m, M):
    """Store the sums of values and of their squares over the pixels of a block."""
    sums += (net * tl.num_programs(0) + block) * 2 * M
    tl.store(sums + m, tl.sum(total, 0), mask=m < M)
    tl.store(sums + M + m, tl.sum(total * total, 0), mask=m < M)


@_kernel
def pointwise(
    y, scale, shift, w, z, sums, C, M, P, y_row, w_row, z_row, y_net, s_net, w_net, z_net,
    BM: tl.constexpr, BP: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """1×1 convolution z[p, m] = Σ x[p, c] w[m, c], with the sums of z and z² over each block of pixels."""
    block, net = tl.program_id(0), tl.program_id(2).to(tl.int64)
    y += net * y_net
    scale += net * s_net
    shift += net * s_net
    w += net * w_net
    z += net * z_net
    D: tl.constexpr = z.dtype.element_ty
    p = block * BP + tl.arange(0, BP)
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    here = p < P
    total = tl.zeros((BP, BM), tl.float32)
    for c0 in range(0, C, BK):
        c = c0 + tl.arange(0, BK)
        tile = tl.load(y + p[:, None] * y_row + c[None, :], mask=here[:, None] & (c < _whole(C))[None, :], other=0.0)
        x = _rectified(tile, scale, shift, c, C, here, False).to(D)
        weights = tl.load(
            w + m[:, None] * w_row + c[None, :], mask=(m < M)[:, None] & (c < _whole(C))[None, :], other=0.0
        )
        total = tl.dot(x, tl.trans(weights), total, input_precision=PRECISION)
    # Channels up to the next group of eight are zero: they are padding, or written by a later convolution.
    tl.store(z + p[:, None] * z_row + m[None, :], total, mask=here[:, None] & (m < _whole(M))[None, :])
    _store_sums(sums, net, block, total, m, M)


@_kernel
def convolve(
    y, scale, shift, w, z, sums, C, M, Q, y_row, w_row, z_row, y_net, s_net, w_net, z_net,
    SIZE: tl.constexpr, SMALL: tl.constexpr, STRIDE: tl.constexpr, IDENTITY: tl.constexpr, BM: tl.constexpr,
    BP: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """3×3 convolution with padding 1 from SIZE to SMALL rows and columns; weights are (tap, output, input)."""
    block, net = tl.program_id(0), tl.program_id(2).to(tl.int64)
    y += net * y_net
    scale += net * s_net
    shift += net * s_net
    w += net * w_net
    z += net * z_net
    D: tl.constexpr = z.dtype.element_ty
    q = block * BP + tl.arange(0, BP)
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    inside = q < Q
    image, place = q // (SMALL * SMALL), q % (SMALL * SMALL)
    row, column = (place // SMALL) * STRIDE - 1, (place % SMALL) * STRIDE - 1
    corner = image * (SIZE * SIZE) + row * SIZE + column
    parts = tl.cdiv(C, BK)
    total = tl.zeros((BP, BM), tl.float32)
    for step in range(9 * parts):
        tap, c = step // parts, (step % parts) * BK + tl.arange(0, BK)
        u, v = tap // 3, tap % 3
        here = inside & (row + u >= 0) & (row + u < SIZE) & (column + v >= 0) & (column + v < SIZE)
        p = corner + u * SIZE + v
        tile = tl.load(y + p[:, None] * y_row + c[None, :], mask=here[:, None] & (c < _whole(C))[None, :], other=0.0)
        x = _rectified(tile, scale, shift, c, C, here, IDENTITY).to(D)
        mask = (m < M)[:, None] & (c < _whole(C))[None, :]
        weights = tl.load(w + (tap * M + m)[:, None] * w_row + c[None, :], mask=mask, other=0.0)
        total = tl.dot(x, tl.trans(weights), total, input_precision=PRECISION)
    tl.store(z + q[:, None] * z_row + m[None, :], total, mask=inside[:, None] & (m < M)[None, :])
    _store_sums(sums, net, block, total, m, M)


@triton.jit
def _added(sums, m, M, BLOCKS, BB: tl.constexpr, BM: tl.constexpr):
    """Add the two sums of all blocks, in a fixed order."""
    first, second = tl.zeros((BM,), tl.float32), tl.zeros((BM,), tl.float32)
    for b0 in range(0, BLOCKS, BB):
        b = b0 + tl.arange(0, BB)
        mask = (b < BLOCKS)[:, None] & (m < M)[None, :]
        at = sums + b[:, None] * (2 * M) + m[None, :]
        first += tl.sum(tl.load(at, mask=mask, other=0.0), 0)
        second += tl.sum(tl.load(at + M, mask=mask, other=0.0), 0)
    return first, second


@_kernel
def normalise(
    sums, gamma, beta, scale, shift, mean, rstd, running_mean, running_var, M, BLOCKS, COUNT, w_net, s_net, EPS,
    MOMENTUM,
    BB: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Scale and shift of BatchNorm from the sums of a convolution; update the running mean and variance."""
    net = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    first, second = _added(sums + net * BLOCKS * 2 * M, m, M, BLOCKS, BB, BM)
    average = first / COUNT
    variance = tl.maximum(second / COUNT - average * average, 0.0)
    inverse = 1.0 / tl.sqrt(variance + EPS)
    a = tl.load(gamma + net * w_net + m, mask=m < M, other=0.0) * inverse
    b = tl.load(beta + net * w_net + m, mask=m < M, other=0.0) - a * average
    at = net * s_net + m
    tl.store(scale + at, a, mask=m < M)
    tl.store(shift + at, b, mask=m < M)
    tl.store(mean + at, average, mask=m < M)
    tl.store(rstd + at, inverse, mask=m < M)
    old = tl.load(running_mean + at, mask=m < M, other=0.0)
    tl.store(running_mean + at, old + MOMENTUM * (average - old), mask=m < M)
    old = tl.load(running_var + at, mask=m < M, other=0.0)
    unbiased = variance * (COUNT / (COUNT - 1.0))
    tl.store(running_var + at, old + MOMENTUM * (unbiased - old), mask=m < M)


@_kernel
def gradient_sums(
    g, y, scale, shift, mean, rstd, sums, M, P, row, y_net, s_net,
    BM: tl.constexpr, BP: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Sums over pixels of the gradient behind the ReLU, and of its product with the normalised values."""
    block, net = tl.program_id(0), tl.program_id(2).to(tl.int64)
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    at = net * s_net + m
    a, b = tl.load(scale + at, mask=m < M, other=0.0), tl.load(shift + at, mask=m < M, other=0.0)
    average, inverse = tl.load(mean + at, mask=m < M, other=0.0), tl.load(rstd + at, mask=m < M, other=0.0)
    g += net * y_net
    y += net * y_net
    first, second = tl.zeros((BM,), tl.float32), tl.zeros((BM,), tl.float32)
    for tile in range(TILES):
        p = (block * TILES + tile) * BP + tl.arange(0, BP)
        known = (p < P)[:, None] & (m < M)[None, :]
        place = p[:, None] * row + m[None, :]
        value = tl.load(y + place, mask=known, other=0.0).to(tl.float32)
        up = tl.load(g + place, mask=known, other=0.0).to(tl.float32)
        up = tl.where(value * a[None, :] + b[None, :] > 0.0, up, 0.0)
        first += tl.sum(up, 0)
        second += tl.sum(up * (value - average[None, :]) * inverse[None, :], 0)
    sums += (net * tl.num_programs(0) + block) * 2 * M
    tl.store(sums + m, first, mask=m < M)
    tl.store(sums + M + m, second, mask=m < M)


@_kernel
def finish_gradient(
    sums, scale, mean, rstd, slope, offset, d_gamma, d_beta, M, BLOCKS, COUNT, s_net, d_net,
    BB: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Gradients of BatchNorm's parameters, and what turns the gradient behind it into the one before it.

    That is scale · g + slope · y + offset, where g is zero wherever the ReLU is.
    """
    net = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    first, second = _added(sums + net * BLOCKS * 2 * M, m, M, BLOCKS, BB, BM)
    at, mask = net * s_net + m, m < M
    a, average = tl.load(scale + at, mask=mask, other=0.0), tl.load(mean + at, mask=mask, other=0.0)
    inverse = tl.load(rstd + at, mask=mask, other=0.0)
    k = -a * inverse * second / COUNT
    tl.store(slope + at, k, mask=mask)
    tl.store(offset + at, -a * first / COUNT - k * average, mask=mask)
    tl.store(d_gamma + net * d_net + m, second, mask=mask)
    tl.store(d_beta + net * d_net + m, first, mask=mask)


@_kernel
def apply_gradient(
    g, y, scale, shift, slope, offset, d, M, P, row, d_row, y_net, s_net, d_net, BM: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """Write the gradient before BatchNorm and ReLU, and zeros for the channels up to the next group of eight."""
    net = tl.program_id(2).to(tl.int64)
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    at, mask = net * s_net + m, m < M
    a, b = tl.load(scale + at, mask=mask, other=0.0), tl.load(shift + at, mask=mask, other=0.0)
    k, l = tl.load(slope + at, mask=mask, other=0.0), tl.load(offset + at, mask=mask, other=0.0)  # noqa: E741
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    known = (p < P)[:, None] & mask[None, :]
    place = p[:, None] * row + m[None, :]
    value = tl.load(y + net * y_net + place, mask=known, other=0.0).to(tl.float32)
    up = tl.load(g + net * y_net + place, mask=known, other=0.0).to(tl.float32)
    up = tl.where(value * a[None, :] + b[None, :] > 0.0, up, 0.0)
    down = a[None, :] * up + k[None, :] * value + l[None, :]
    known = (p < P)[:, None] & (m < _whole(M))[None, :]
    tl.store(d + net * d_net + p[:, None] * d_row + m[None, :], down, mask=known)


@_kernel
def pointwise_back(
    g, z, scale, shift, slope, offset, w, gx, M, C, P, z_row, w_row, x_row, z_net, s_net, w_net, x_net,
    ONE: tl.constexpr, BM: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add the gradient of a 1×1 convolution's inputs. ONE: all outputs fit one block."""
    net = tl.program_id(2).to(tl.int64)
    g += net * z_net
    z += net * z_net
    scale += net * s_net
    shift += net * s_net
    slope += net * s_net
    offset += net * s_net
    w += net * w_net
    gx += net * x_net
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    m = tl.arange(0, BM)
    D: tl.constexpr = z.dtype.element_ty
    if ONE:
        down = _before_norm(g, z, scale, shift, slope, offset, p, P, z_row, m, M, D)
    for c0 in range(0, C, BC):
        c = c0 + tl.arange(0, BC)
        if ONE:
            weights = tl.load(
                w + m[:, None] * w_row + c[None, :], mask=(m < M)[:, None] & (c < _whole(C))[None, :], other=0.0
            )
            total = tl.dot(down, weights, input_precision=PRECISION)
        else:
            total = tl.zeros((BP, BC), tl.float32)
            for m0 in range(0, M, BM):
                k = m0 + m
                part = _before_norm(g, z, scale, shift, slope, offset, p, P, z_row, k, M, D)
                mask = (k < M)[:, None] & (c < _whole(C))[None, :]
                weights = tl.load(w + k[:, None] * w_row + c[None, :], mask=mask, other=0.0)
                total = tl.dot(part, weights, total, input_precision=PRECISION)
        at = gx + p[:, None] * x_row + c[None, :]
        known = (p < P)[:, None] & (c < _whole(C))[None, :]
        tl.store(at, tl.load(at, mask=known, other=0.0).to(tl.float32) + total, mask=known)


@_kernel
def pointwise_weights(
    g, z, scale, shift, slope, offset, y, y_scale, y_shift, out, M, C, P, LENGTH, z_row, y_row, z_net, s_net, y_net,
    t_net, o_net,
    BM: tl.constexpr, BC: tl.constexpr, BP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradient of a 1×1 convolution's weights over LENGTH pixels."""
    split, net = tl.program_id(1), tl.program_id(2).to(tl.int64)
    blocks = tl.cdiv(C, BC)
    m = (tl.program_id(0) // blocks) * BM + tl.arange(0, BM)
    c = (tl.program_id(0) % blocks) * BC + tl.arange(0, BC)
    g += net * z_net
    z += net * z_net
    scale += net * s_net
    shift += net * s_net
    slope += net * s_net
    offset += net * s_net
    y += net * y_net
    y_scale += net * t_net
    y_shift += net * t_net
    D: tl.constexpr = z.dtype.element_ty
    total = tl.zeros((BM, BC), tl.float32)
    for p0 in range(split * LENGTH, tl.minimum((split + 1) * LENGTH, P), BP):
        p = p0 + tl.arange(0, BP)
        here = p < P
        down = _before_norm(g, z, scale, shift, slope, offset, p, P, z_row, m, M, D)
        tile = tl.load(y + p[:, None] * y_row + c[None, :], mask=here[:, None] & (c < _whole(C))[None, :], other=0.0)
        x = _rectified(tile, y_scale, y_shift, c, C, here, False).to(D)
        total = tl.dot(tl.trans(down), x, total, input_precision=PRECISION)
    out += net * o_net + split * M * C
    tl.store(out + m[:, None] * C + c[None, :], total, mask=(m < M)[:, None] & (c < C)[None, :])


@_kernel
def convolve_back(
    d, w, gx, z, scale, shift, mean, rstd, sums, M, C, P, d_row, w_row, x_row, d_net, w_net, x_net, s_net,
    SIZE: tl.constexpr, SMALL: tl.constexpr, STRIDE: tl.constexpr, ADD: tl.constexpr, BC: tl.constexpr,
    BP: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradient of a 3×3 convolution's inputs from the one of its outputs before BatchNorm.

    ADD: add it to `gx`. Otherwise store it, with the sums that the gradient of the inputs' own BatchNorm needs. With
    stride 2, a block has the pixels of one parity of row and column, for which the same taps count.
    """
    block, net = tl.program_id(0), tl.program_id(2).to(tl.int64)
    d += net * d_net
    w += net * w_net
    gx += net * x_net
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    if STRIDE == 1:
        first_row, first_column, across, taps = 0, 0, 3, 9
        p = block * BP + tl.arange(0, BP)
        image, place = p // (SIZE * SIZE), p % (SIZE * SIZE)
        i, j = place // SIZE, place % SIZE
    else:
        HALF: tl.constexpr = (SIZE + 1) // 2
        odd_row, odd_column = (block % 4) // 2, block % 2
        first_row, first_column, across = 1 - odd_row, 1 - odd_column, 1 + odd_column
        taps = (1 + odd_row) * across
        quarter = (block // 4) * BP + tl.arange(0, BP)
        image, place = quarter // (HALF * HALF), quarter % (HALF * HALF)
        i, j = 2 * (place // HALF) + odd_row, 2 * (place % HALF) + odd_column
    inside = (image * (SIZE * SIZE) < P) & (i < SIZE) & (j < SIZE)
    p = image * (SIZE * SIZE) + i * SIZE + j
    parts = tl.cdiv(M, BK)
    total = tl.zeros((BP, BC), tl.float32)
    for step in range(taps * parts):
        tap, m = step // parts, (step % parts) * BK + tl.arange(0, BK)
        u, v = first_row + (tap // across) * STRIDE, first_column + (tap % across) * STRIDE
        # Where the division has a remainder, the tap does not count; `first_row` leaves only the others.
        row, column = (i + 1 - u) // STRIDE, (j + 1 - v) // STRIDE
        here = inside & (i + 1 - u >= 0) & (row < SMALL) & (j + 1 - v >= 0) & (column < SMALL)
        q = image * (SMALL * SMALL) + row * SMALL + column
        up = tl.load(d + q[:, None] * d_row + m[None, :], mask=here[:, None] & (m < _whole(M))[None, :], other=0.0)
        mask = (m < M)[:, None] & (c < _whole(C))[None, :]
        weights = tl.load(w + ((u * 3 + v) * M + m)[:, None] * w_row + c[None, :], mask=mask, other=0.0)
        total = tl.dot(up, weights, total, input_precision=PRECISION)
    at = p[:, None] * x_row + c[None, :]
    known = inside[:, None] & (c < _whole(C))[None, :]
    if ADD:
        tl.store(gx + at, tl.load(gx + at, mask=known, other=0.0).to(tl.float32) + total, mask=known)
    else:
        tl.store(gx + at, total, mask=inside[:, None] & (c < C)[None, :])
        z += net * x_net
        scale += net * s_net
        shift += net * s_net
        mean += net * s_net
        rstd += net * s_net
        value = tl.load(z + at, mask=known, other=0.0).to(tl.float32)
        a, b = tl.load(scale + c, mask=c < C, other=0.0), tl.load(shift + c, mask=c < C, other=0.0)
        average, inverse = tl.load(mean + c, mask=c < C, other=0.0), tl.load(rstd + c, mask=c < C, other=0.0)
        active = inside[:, None] & (value * a[None, :] + b[None, :] > 0.0)
        up = tl.where(active, total, 0.0)
        sums += (net * tl.num_programs(0) + block) * 2 * C
        tl.store(sums + c, tl.sum(up, 0), mask=c < C)
        tl.store(sums + C + c, tl.sum(up * (value - average[None, :]) * inverse[None, :], 0), mask=c < C)


@_kernel
def narrow_weights(
    d, y, scale, shift, out, M, C, P, LENGTH, y_row, d_net, y_net, s_net, o_net,
    SIZE: tl.constexpr, SMALL: tl.constexpr, STRIDE: tl.constexpr, IDENTITY: tl.constexpr, ROW: tl.constexpr,
    TAPS: tl.constexpr, BC: tl.constexpr, BP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradient of the weights of a 3×3 convolution with few outputs over LENGTH pixels of its inputs.

    All taps are computed together: column k is output k % ROW of tap k // ROW.
    """
    split, net = tl.program_id(1), tl.program_id(2).to(tl.int64)
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    k = tl.arange(0, TAPS * ROW)
    tap, m = k // ROW, k % ROW
    u, v = tap // 3, tap % 3
    d += net * d_net
    y += net * y_net
    scale += net * s_net
    shift += net * s_net
    D: tl.constexpr = y.dtype.element_ty
    total = tl.zeros((BC, TAPS * ROW), tl.float32)
    for p0 in range(split * LENGTH, tl.minimum((split + 1) * LENGTH, P), BP):
        p = p0 + tl.arange(0, BP)
        here = p < P
        tile = tl.load(y + p[:, None] * y_row + c[None, :], mask=here[:, None] & (c < _whole(C))[None, :], other=0.0)
        x = _rectified(tile, scale, shift, c, C, here, IDENTITY).to(D)
        image, place = p // (SIZE * SIZE), p % (SIZE * SIZE)
        i, j = (place // SIZE)[:, None] + 1 - u[None, :], (place % SIZE)[:, None] + 1 - v[None, :]
        known = here[:, None] & (i >= 0) & (j >= 0) & (i < SMALL * STRIDE) & (j < SMALL * STRIDE) & (tap < 9)[None, :]
        if STRIDE == 2:
            known &= ((i | j) & 1) == 0
            i, j = i // 2, j // 2
        q = image[:, None] * (SMALL * SMALL) + i * SMALL + j
        up = tl.load(d + q * ROW + m[None, :], mask=known, other=0.0).to(D)
        total = tl.dot(tl.trans(x), up, total, input_precision=PRECISION)
    out += net * o_net + split * 9 * M * C
    mask = (c < C)[:, None] & ((tap < 9) & (m < M))[None, :]
    tl.store(out + (tap * M + m)[None, :] * C + c[:, None], total, mask=mask)


@_kernel
def wide_weights(
    d, y, scale, shift, out, M, C, Q, LENGTH, d_row, y_row, d_net, y_net, s_net, o_net,
    SIZE: tl.constexpr, SMALL: tl.constexpr, STRIDE: tl.constexpr, IDENTITY: tl.constexpr, BM: tl.constexpr,
    BC: tl.constexpr, BP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradient of a 3×3 convolution's weights, one tap per block, over LENGTH pixels of its outputs."""
    split, net = tl.program_id(1), tl.program_id(2).to(tl.int64)
    tap = tl.program_id(0) % 9
    blocks = tl.cdiv(C, BC)
    m = (tl.program_id(0) // 9 // blocks) * BM + tl.arange(0, BM)
    c = (tl.program_id(0) // 9 % blocks) * BC + tl.arange(0, BC)
    d += net * d_net
    y += net * y_net
    scale += net * s_net
    shift += net * s_net
    D: tl.constexpr = y.dtype.element_ty
    total = tl.zeros((BM, BC), tl.float32)
    for q0 in range(split * LENGTH, tl.minimum((split + 1) * LENGTH, Q), BP):
        q = q0 + tl.arange(0, BP)
        image, place = q // (SMALL * SMALL), q % (SMALL * SMALL)
        i, j = (place // SMALL) * STRIDE - 1 + tap // 3, (place % SMALL) * STRIDE - 1 + tap % 3
        here = (q < Q) & (i >= 0) & (i < SIZE) & (j >= 0) & (j < SIZE)
        known = (q < Q)[:, None] & (m < _whole(M))[None, :]
        up = tl.load(d + q[:, None] * d_row + m[None, :], mask=known, other=0.0).to(D)
        p = image * (SIZE * SIZE) + i * SIZE + j
        tile = tl.load(y + p[:, None] * y_row + c[None, :], mask=here[:, None] & (c < _whole(C))[None, :], other=0.0)
        x = _rectified(tile, scale, shift, c, C, here, IDENTITY).to(D)
        total = tl.dot(tl.trans(up), x, total, input_precision=PRECISION)
    out += net * o_net + split * 9 * M * C
    tl.store(out + (tap * M + m)[:, None] * C + c[None, :], total, mask=(m < M)[:, None] & (c < C)[None, :])


@_kernel
def update(weights, momenta, gradients, table, rates, w_net, g_net, MOMENTUM, DECAY, BLOCK: tl.constexpr):
    """One step of Nesterov SGD for all parameters; adds up the parts of each gradient in a fixed order.

    A row of the table is (first parameter, parameters, first number of the gradient, its parts, numbers per part).
    """
    row, net = table + tl.program_id(0) * 5, tl.program_id(1).to(tl.int64)
    first, count, at, parts, stride = (
        tl.load(row), tl.load(row + 1), tl.load(row + 2), tl.load(row + 3), tl.load(row + 4)
    )  # fmt: skip
    rate = tl.load(rates + net)
    k = tl.arange(0, BLOCK)
    mask = k < count
    total = tl.zeros((BLOCK,), tl.float32)
    for part in range(parts):
        total += tl.load(gradients + net * g_net + at + part * stride + k, mask=mask, other=0.0)
    place = net * w_net + first + k
    value = tl.load(weights + place, mask=mask, other=0.0)
    total += DECAY * value
    speed = MOMENTUM * tl.load(momenta + place, mask=mask, other=0.0) + total
    tl.store(momenta + place, speed, mask=mask)
    tl.store(weights + place, value - rate * (total + MOMENTUM * speed), mask=mask)


@_kernel
def copy_weights(weights, index, copy, COUNT, w_net, c_net, BLOCK: tl.constexpr):
    """Copy weights in the precision and the order in which convolutions read them; zero where the index is negative."""
    net = tl.program_id(1).to(tl.int64)
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(index + k, mask=k < COUNT, other=-1)
    tl.store(copy + net * c_net + k, tl.load(weights + net * w_net + at, mask=at >= 0, other=0.0), mask=k < COUNT)


@_kernel
def prepare(
    pixels, index, shift, flip, step, x, mean, rstd, ROWS, STEPS, COLOURS, H, W, x_row, BORDER, BP: tl.constexpr,
):  # fmt: skip
    """Crop, mirror and normalise the images of one step's batch."""
    block, row, net = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    at = (net * STEPS + tl.load(step)) * ROWS + row
    image = tl.load(index + at).to(tl.int64)
    down, right, mirrored = tl.load(shift + 2 * at), tl.load(shift + 2 * at + 1), tl.load(flip + at)
    k = block * BP + tl.arange(0, BP)
    colour, place = k // (H * W), k % (H * W)
    i, j = place // W, place % W
    j = tl.where(mirrored != 0, W - 1 - j, j)
    i, j = i + down - BORDER, j + right - BORDER
    inside, mask = (i >= 0) & (i < H) & (j >= 0) & (j < W), k < COLOURS * H * W
    value = tl.load(pixels + (image * COLOURS + colour) * H * W + i * W + j, mask=mask & inside, other=0).to(tl.float32)
    average, inverse = tl.load(mean + colour, mask=mask, other=0.0), tl.load(rstd + colour, mask=mask, other=0.0)
    out = x + ((net * ROWS + row) * (H * W) + place) * x_row + colour
    tl.store(out, (value / 255.0 - average) * inverse, mask=mask)
