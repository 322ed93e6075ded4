"""density"""
