"""bases"""
