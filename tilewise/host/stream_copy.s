# void stream_copy(void *to, const void *from, size_t bytes, size_t lines,
#                  ptrdiff_t to_pitch, ptrdiff_t from_pitch)
#
# Copies ``lines`` lines, at least one, with non-temporal stores. It follows the System V calling
# convention for x86-64, and has no instruction beyond SSE2. CODE in streaming.py is this file,
# assembled by
#
#     as stream_copy.s -o stream_copy.o
#     objcopy -O binary --only-section=.text stream_copy.o stream_copy.bin
    .intel_syntax noprefix
    .text
stream_copy:
    endbr64                         # it is called by its address (Intel CET)
line:
    lea r10, [rdi + rdx]            # where the line ends in the destination
head:                               # byte by byte, up to a multiple of 64 bytes
    test dil, 63
    jz blocks
    cmp rdi, r10
    je next
    mov al, [rsi]
    mov [rdi], al
    inc rsi
    inc rdi
    jmp head
blocks:
    mov r11, r10
    and r11, -64                    # where its last whole block of 64 bytes ends
    jmp more
block:                              # four stores fill a write-combining buffer
    movdqu xmm0, [rsi]
    movdqu xmm1, [rsi + 16]
    movdqu xmm2, [rsi + 32]
    movdqu xmm3, [rsi + 48]
    movntdq [rdi], xmm0
    movntdq [rdi + 16], xmm1
    movntdq [rdi + 32], xmm2
    movntdq [rdi + 48], xmm3
    add rsi, 64
    add rdi, 64
more:
    cmp rdi, r11
    jb block
tail:                               # byte by byte, what is left
    cmp rdi, r10
    je next
    mov al, [rsi]
    mov [rdi], al
    inc rsi
    inc rdi
    jmp tail
next:
    sub rdi, rdx
    add rdi, r8
    sub rsi, rdx
    add rsi, r9
    dec rcx
    jnz line
    sfence                          # before anybody is told that the copy has ended
    ret
