#!/bin/bash
#SBATCH --job-name=student
#SBATCH --gpu-share=25%
#SBATCH --time=10
#SBATCH --output=student-%j.out

# A quarter of a GPU: four of these share one.
srun aliquot-load --mem 1G --seconds 8 --busy 20%
