#include "textflag.h"

// func entry()
TEXT ·entry(SB), NOSPLIT|NOFRAME, $0
	MOVQ $14, AX                 // rt_sigprocmask(0, nil, &started.mask, 8)
	XORQ DI, DI
	XORQ SI, SI
	LEAQ ·started+8(SB), DX
	MOVQ $8, R10
	SYSCALL
	LEAQ ·started+16(SB), R12
	MOVQ $1, BX
next:
	MOVQ $13, AX                 // rt_sigaction(signal, nil, &started.actions[signal-1], 8)
	MOVQ BX, DI
	XORQ SI, SI
	MOVQ R12, DX
	MOVQ $8, R10
	SYSCALL
	ADDQ $32, R12
	INCQ BX
	CMPQ BX, $64
	JLE  next
	MOVQ $1, ·started+0(SB)
	JMP  _rt0_amd64_linux(SB)

// func source()
TEXT ·source(SB), NOSPLIT|NOFRAME, $0
	CMPL 8(SI), $0x80            // si_code, SI_KERNEL
	JEQ  next
	LEAQ ·fromProcess(SB), R8
	MOVL $1, (R8)(DI*4)
next:
	MOVQ ·runtimeHandler(SB), R8
	JMP  R8

GLOBL ·sourceHandler(SB), RODATA, $8
DATA ·sourceHandler(SB)/8, $·source(SB)
