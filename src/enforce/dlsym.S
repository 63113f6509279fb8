/* dlsym, in front of libc's. For a name of ours it returns our answer; for any other it restores the
 * arguments and jumps to the real one, which then sees the program as its caller: RTLD_NEXT depends
 * on that. Assembly, since no compiler promises the jump. */
#if defined(__x86_64__)
        .text
        .globl  dlsym
        .type   dlsym, @function
dlsym:
        .cfi_startproc
        endbr64
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        leaq    8(%rsp), %rdi
        call    aliquot_dlsym_answer
        testq   %rax, %rax
        jnz     1f
        call    aliquot_real_dlsym
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        testq   %rax, %rax
        jz      2f
        jmp     *%rax
2:      ret
1:      .cfi_adjust_cfa_offset 24
        addq    $24, %rsp
        .cfi_adjust_cfa_offset -24
        ret
        .cfi_endproc
        .size   dlsym, . - dlsym
#elif defined(__aarch64__)
        .text
        .globl  dlsym
        .type   dlsym, %function
dlsym:
        .cfi_startproc
        stp     x29, x30, [sp, #-32]!
        .cfi_adjust_cfa_offset 32
        stp     x0, x1, [sp, #16]
        add     x0, sp, #16
        bl      aliquot_dlsym_answer
        cbnz    x0, 1f
        bl      aliquot_real_dlsym
        mov     x16, x0
        ldp     x0, x1, [sp, #16]
        ldp     x29, x30, [sp], #32
        cbz     x16, 2f
        br      x16
2:      mov     x0, #0
        ret
1:      ldp     x29, x30, [sp], #32
        ret
        .cfi_endproc
        .size   dlsym, . - dlsym
#else
#error "dlsym.S: an x86-64 or aarch64 processor is needed"
#endif
        .section .note.GNU-stack, "", %progbits
